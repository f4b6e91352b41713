//! Which kind of recording a file is.

use crate::given::{take_over, warn, warn_of_unused};
use crate::perf::core_named;
use crate::unpacked::content_with_doubt;
use crate::{griffin, lldb, perf, raw, session, Capture, CaptureError, Options};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Reads a recording. Its kind is told by its content, also within gzip or zstd.
pub fn open(path: &Path, given: &Options) -> Result<Capture, CaptureError> {
    let path = &described(path);
    let (data, doubt) = content_with_doubt(path)?;
    let options = &with_neighbours(path, given);
    let mut capture = if data.starts_with(griffin::MAGIC) {
        griffin::read(path, &data, options)?
    } else if perf::is_file(&data) {
        perf::read(path, data, options)?
    } else if session::describes(&data) {
        session::read(path, &data, options)?
    } else if lldb::describes(&data) {
        lldb::read(path, &data, options)?
    } else if !is_tar(&data) && data.find_psb().is_some() {
        raw::read(path, data, options)?
    } else {
        return Err(CaptureError::Unknown { path: path.to_owned(), why: unknown(&data) });
    };
    capture.warnings.extend(doubt);
    take_over(&mut capture, options);
    capture.config.thread_switch = capture.memory().thread_switch();
    warn(&mut capture);
    warn_of_unused(&mut capture, given, options);
    Ok(capture)
}

/// The file that tells a folder's recording (of LLDB, of `perf record --kcore` or `--threads`, of a session, of DynamoRIO),
/// or the file itself.
fn described(path: &Path) -> PathBuf {
    let found = ["trace.json", "data", "manifest.json", "pt.bin"]
        .into_iter()
        .map(|name| path.join(name))
        .find(|inside| inside.is_file());
    found.unwrap_or_else(|| path.to_owned())
}

/// The options with what stands beside the recording: the copy of the kernel that `perf record --kcore` makes, and
/// records of the kernel (`is_sideband`) with the binaries that they name.
fn with_neighbours(path: &Path, options: &Options) -> Options {
    let mut options = options.clone();
    if options.sideband.is_empty() {
        options.sideband = sideband_beside(path);
        if let (Some(folder), false) = (path.parent(), options.sideband.is_empty()) {
            options.symbols.push(folder.to_owned());
        }
    }
    let beside = |name: &str| Some(path.parent()?.join("kcore_dir").join(name)).filter(|path| path.is_file());
    Options {
        kcore: options.kcore.clone().or_else(|| beside("kcore")),
        kallsyms: options.kallsyms.clone().or_else(|| beside("kallsyms")),
        ..options
    }
}

fn sideband_beside(path: &Path) -> Vec<PathBuf> {
    let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let packets = path.file_name().unwrap_or_default().to_string_lossy();
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let named = |path: &Path| is_sideband(&path.file_name().unwrap_or_default().to_string_lossy(), &packets);
    let mut found: Vec<_> = paths.filter(|path| named(path)).collect();
    found.sort();
    let core_of = |path: &PathBuf| core_named(&path.file_name().unwrap_or_default().to_string_lossy());
    let cores: BTreeSet<_> = found.iter().filter_map(core_of).collect();
    let own = core_beside(&packets, &cores);
    found.sort_by_key(|path| own.is_none() || core_of(path) != own);
    found
}

/// Whose packets a file of the scripts of libipt has, if records say nothing of it: of those that perf recorded the one with that
/// number, which is the core's own where all were recorded.
fn core_beside(packets: &str, cores: &BTreeSet<u32>) -> Option<u32> {
    let number: String = packets.rsplit_once("-aux-idx")?.1.chars().take_while(char::is_ascii_digit).collect();
    let number: u32 = number.parse().ok()?;
    cores.get(&number).or_else(|| cores.iter().nth(number as usize)).copied()
}

/// As DynamoRIO names such files, whatever the packets are called, and as the scripts of libipt do, with whose files it and ptxed
/// are given what perf recorded: `perf.data-sideband-cpu0.pevent` beside `perf.data-aux-idx0.bin`.
fn is_sideband(name: &str, packets: &str) -> bool {
    let recording = packets.rsplit_once("-aux-idx").map(|(recording, _)| recording);
    let of_libipt = recording.and_then(|recording| name.strip_prefix(recording)?.strip_prefix("-sideband"));
    let of_libipt = of_libipt.is_some_and(|rest| rest.ends_with(".pevent"));
    of_libipt || name == "sideband.pevent" || name.ends_with(".sideband.pevent")
}

/// Packets stand in it as they are, beside all else. POSIX.1-1988, "ustar Interchange Format": the magic behind the names and
/// the owner of the first file.
fn is_tar(data: &[u8]) -> bool {
    data.get(257..262) == Some(b"ustar")
}

fn archive(data: &[u8]) -> Option<&'static str> {
    const BEGINNINGS: [(&[u8], &str); 6] = [
        (b"PK\x03\x04", "a zip"),
        (b"\xfd7zXZ\0", "an xz"),
        (b"BZh", "a bzip2"),
        (b"7z\xbc\xaf\x27\x1c", "a 7z"),
        // One layer was taken off.
        (b"\x1f\x8b", "a gzip within an"),
        (b"\x28\xb5\x2f\xfd", "a zstd within an"),
    ];
    let begins = || BEGINNINGS.into_iter().find_map(|(beginning, kind)| data.starts_with(beginning).then_some(kind));
    is_tar(data).then_some("a tar").or_else(begins)
}

fn unknown(data: &[u8]) -> String {
    if data.is_empty() {
        return "the file is empty".to_owned();
    }
    if let Some(kind) = archive(data) {
        return format!("this is {kind} archive: unpack it, and give the recording in it");
    }
    if data.starts_with(b"PERFFILE") {
        return "a perf.data of perf's first version, which knew no Processor Trace: record with a newer perf"
            .to_owned();
    }
    let first: Vec<_> = data.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!(
        "neither perf.data, an LLDB trace bundle, a session, a Griffin container nor Processor Trace packets \
         (no PSB in {} bytes); it begins with {}",
        data.len(),
        first.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_the_kernel_are_those_of_the_packets_beside_them() {
        for name in ["sideband.pevent", "primary.sideband.pevent"] {
            assert!(is_sideband(name, "pt.bin"), "{name}");
        }
        for name in ["perf.data-sideband.pevent", "perf.data-sideband-cpu0.pevent", "perf.data-sideband-cpu12.pevent"] {
            assert!(is_sideband(name, "perf.data-aux-idx0.bin"), "{name}");
            assert!(!is_sideband(name, "other.data-aux-idx0.bin") && !is_sideband(name, "pt.bin"), "{name}");
        }
        assert!(!is_sideband("perf.data-aux-idx0.bin", "perf.data-aux-idx0.bin"));
    }

    #[test]
    fn an_archive_is_told_from_packets() {
        let mut tar = b"pt.bin".to_vec();
        tar.resize(257, 0);
        tar.extend(b"ustar\x0000");
        tar.resize(512, 0);
        tar.extend([0x02, 0x82].repeat(8));
        let file = std::env::temp_dir().join(format!("pt-capture-archive-{}", std::process::id()));
        for (content, kind) in [(&tar[..], "a tar"), (b"PK\x03\x04....", "a zip"), (b"\xfd7zXZ\0..", "an xz")] {
            std::fs::write(&file, content).unwrap();
            let Err(refused) = open(&file, &Options::default()) else { panic!("{kind}") };
            assert!(refused.to_string().contains(&format!("{kind} archive: unpack it")), "{refused}");
        }
        std::fs::remove_file(&file).unwrap();
    }

    #[test]
    fn what_is_packed_twice_or_of_another_time_is_named() {
        assert!(unknown(b"\x1f\x8b\x08\0").starts_with("this is a gzip within an archive: unpack it"));
        assert!(unknown(b"\x28\xb5\x2f\xfd").starts_with("this is a zstd within an archive: unpack it"));
        assert!(unknown(b"PERFFILE\x68\0").ends_with("record with a newer perf"));
    }

    #[test]
    fn packets_are_of_the_core_of_their_number_or_of_the_recorded_one_with_that_place() {
        let core = |packets, cores: &[u32]| core_beside(packets, &cores.iter().copied().collect());
        assert_eq!(core("perf.data-aux-idx1.bin", &[0, 1, 2]), Some(1));
        assert_eq!(core("perf.data-aux-idx1.bin", &[45, 51]), Some(51));
        assert_eq!(core("perf.data-aux-idx10.0.bin", &[2, 10]), Some(10));
        assert_eq!([core("perf.data-aux-idx2.bin", &[45, 51]), core("pt.bin", &[0])], [None, None]);
    }
}
