//! What is given beside a recording that has no use for it.

use crate::support::reference_data;
use pt_capture::{open, Options, RawImage};
use std::path::{Path, PathBuf};

fn warnings(path: &Path, options: &Options) -> Vec<String> {
    let unused = |warning: &String| warning.starts_with("not used of what was given: ");
    open(path, options).unwrap().warnings.into_iter().filter(unused).collect()
}

/// Of code, of records, of a kernel and of its names alone how many are told to be of no use.
fn unused(path: &Path) -> [usize; 4] {
    let none = Options::default;
    let file = || Some(PathBuf::from("nowhere"));
    let image = RawImage { file: "nowhere".into(), offset: 0, size: None, address: 0 };
    let given = [
        Options { images: vec![image], ..none() },
        Options { sideband: file().into_iter().collect(), ..none() },
        Options { vmlinux: file(), kcore: file(), kallsyms: file(), ..none() },
        Options { kallsyms: file(), ..none() },
    ];
    assert_eq!(warnings(path, &none()), Vec::<String>::new());
    given.map(|options| open(path, &options).map_or(0, |_| warnings(path, &options).len()))
}

#[test]
fn what_a_recording_has_no_use_for_is_told() {
    let Some(data) = reference_data() else { return };
    let pt = |name: &str| data.join("pt").join(name);
    for name in ["griffin/hello.griffin.gz", "lldb/intelpt-multi-core-trace/trace.json"] {
        assert_eq!(unused(&pt(name)), [1; 4], "{name}");
    }
    // A kernel that cannot be read is refused, and names of one that is not there are useless.
    assert_eq!(unused(&pt("perf/perf.data.intel_pt-4.14")), [1, 1, 0, 1]);
    // Packets alone take code and records, and with these a kernel as a perf.data does.
    let folder = pt("dynamorio");
    assert_eq!(unused(&folder.join("pt.bin")), [0, 0, 0, 1]);
    let alone = std::env::temp_dir().join(format!("pt-given-{}", std::process::id()));
    std::fs::create_dir_all(&alone).unwrap();
    std::fs::copy(folder.join("pt.bin"), alone.join("pt.bin")).unwrap();
    assert_eq!(unused(&alone.join("pt.bin")), [0, 0, 1, 1]);
    std::fs::remove_dir_all(&alone).unwrap();
}
