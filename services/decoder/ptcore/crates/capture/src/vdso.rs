//! The code that the kernel itself puts into every process.

use crate::identity::same_id;
use pt_image::{Binary, Bytes, Search};
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;

/// The vdso of the running kernel: right for recordings of the same kernel alone. The error says why there is none.
pub fn own() -> Result<Arc<Binary>, String> {
    let maps = std::fs::read_to_string("/proc/self/maps").map_err(|error| format!("/proc/self/maps: {error}"))?;
    let line = maps.lines().find(|line| line.ends_with("[vdso]")).ok_or("this kernel has no vdso")?;
    let range = line.split(' ').next().and_then(|range| range.split_once('-'));
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    let (start, end) = range.and_then(|(start, end)| number(start).zip(number(end))).ok_or("a strange line of maps")?;
    let read = || -> std::io::Result<Vec<u8>> {
        let mut memory = std::fs::File::open("/proc/self/mem")?;
        memory.seek(SeekFrom::Start(start))?;
        let mut bytes = Vec::new();
        memory.take(end.saturating_sub(start)).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().map_err(|error| format!("the vdso of this kernel: {error}"))?;
    let binary = Binary::of(Path::new("[vdso]"), Bytes::Owned(bytes), &Search::default());
    binary.map(Arc::new).map_err(|error| error.to_string())
}

/// The same where it has the build id that is wanted; any will do where none is.
pub fn with_id(build_id: &str) -> Option<Arc<Binary>> {
    own().ok().filter(|own| build_id.is_empty() || same_id(own.build_id(), build_id))
}

/// Whether the text is the release of the running kernel. Inputs of fuzzing are the same wherever it runs.
pub fn is_running(release: &str) -> bool {
    if cfg!(fuzzing) {
        return !release.is_empty();
    }
    std::fs::read_to_string("/proc/sys/kernel/osrelease").is_ok_and(|own| !release.is_empty() && own.trim() == release)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_running_kernel_has_a_vdso_that_tells_the_time() {
        let vdso = own().unwrap();
        let names: Vec<_> = vdso.functions().iter().filter_map(|function| vdso.name(function)).collect();
        assert!(names.iter().any(|name| name.contains("clock_gettime")), "{names:?}");
        assert!(!is_running("2.0.36") && !is_running(""));
    }
}
