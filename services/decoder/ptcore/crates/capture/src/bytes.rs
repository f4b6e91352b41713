//! Bytes that many hold: parts of a mapped file, or unpacked ones.

use crate::temporary::TemporaryFile;
use crate::CaptureError;
use pt_packet::{find_psb, PSB};
use std::fmt;
use std::io;
use std::ops::{Deref, Range};
use std::path::Path;
use std::sync::Arc;

/// Streams up to this size are joined in memory; fuzzing has none that are large.
pub(crate) const IN_MEMORY: usize = if cfg!(fuzzing) { 1 << 8 } else { 1 << 26 };

/// So many bytes of a mapped file are searched before their memory is given back.
const SEARCHED: usize = 1 << 26;

/// A part of some bytes; a copy is another name for the same bytes.
#[derive(Clone)]
pub struct Bytes {
    whole: Arc<pt_image::Bytes>,
    part: Range<usize>,
}

impl Bytes {
    /// Maps a file.
    pub fn open(path: &Path) -> io::Result<Bytes> {
        Ok(Bytes::whole(pt_image::Bytes::open(path)?))
    }

    fn whole(bytes: pt_image::Bytes) -> Bytes {
        let part = 0..bytes.len();
        Bytes { whole: Arc::new(bytes), part }
    }

    /// Parts one after another; large ones by way of a temporary file that is mapped.
    pub fn join(parts: &[Bytes]) -> Result<Bytes, CaptureError> {
        Bytes::join_in(&std::env::temp_dir(), parts, IN_MEMORY)
    }

    /// The same, but of large ones their beginning alone if that will do: as much as fits into memory.
    pub fn join_for(parts: &[Bytes], beginnings: bool) -> Result<Bytes, CaptureError> {
        let size = parts.iter().map(|part| part.len()).sum::<usize>();
        if !beginnings || parts.len() < 2 || size <= IN_MEMORY {
            return Bytes::join(parts);
        }
        let mut room = IN_MEMORY;
        let begin = parts.iter().map(|part| {
            let part = &part[..part.len().min(room)];
            room -= part.len();
            part
        });
        Ok(begin.collect::<Vec<_>>().concat().into())
    }

    fn join_in(folder: &Path, parts: &[Bytes], in_memory: usize) -> Result<Bytes, CaptureError> {
        if let [one] = parts {
            return Ok(one.clone());
        }
        let size = parts.iter().map(|part| part.len()).sum::<usize>();
        if size <= in_memory {
            return Ok(parts.iter().map(|part| &**part).collect::<Vec<_>>().concat().into());
        }
        let mut read = 0;
        let slices = parts.iter().inspect(|part| {
            read += part.len();
            if read > in_memory {
                part.release();
                read = 0;
            }
        });
        let size = size as u64;
        let file = TemporaryFile::of(folder, slices.map(|part| &**part), size)?;
        let mapped = Bytes::open(&file.0);
        mapped.map_err(|error| CaptureError::Temporary { folder: folder.to_owned(), size, error })
    }

    /// Gives back the memory of what was read of a mapped file.
    pub fn release(&self) {
        self.whole.release();
    }

    /// The offset of the first PSB. Memory does not follow the size of a file that holds none.
    pub fn find_psb(&self) -> Option<usize> {
        let mut from = 0_usize;
        loop {
            let end = from.saturating_add(SEARCHED).min(self.len());
            let found = find_psb(&self[..end], from);
            self.release();
            if found.is_some() || end == self.len() {
                return found;
            }
            from = end - PSB.len();
        }
    }

    /// The same for a binary to hold.
    pub fn shared(&self) -> pt_image::Bytes {
        pt_image::Bytes::Part(Arc::clone(&self.whole), self.part.clone())
    }

    /// A part of these, cut off at their end.
    pub fn part(&self, part: Range<usize>) -> Bytes {
        let end = self.part.start.saturating_add(part.end).min(self.part.end);
        let start = self.part.start.saturating_add(part.start).min(end);
        Bytes { whole: Arc::clone(&self.whole), part: start..end }
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Bytes::whole(pt_image::Bytes::Owned(bytes))
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.whole[self.part.clone()]
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts() -> [Bytes; 3] {
        [&b"one"[..], b"", b"two"].map(|part| part.to_vec().into())
    }

    #[test]
    fn what_is_large_is_joined_in_a_file_that_is_gone_afterwards() {
        let folder = std::env::temp_dir().join(format!("pt-capture-join-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for in_memory in [6, 5] {
            let joined = Bytes::join_in(&folder, &parts(), in_memory).unwrap();
            assert_eq!(&*joined, b"onetwo");
            assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_was_searched_for_packets_is_given_back() {
        let path = std::env::temp_dir().join(format!("pt-capture-search-{}", std::process::id()));
        let file = std::fs::File::create(&path).unwrap();
        let size = 3 * SEARCHED + 100;
        file.set_len(size as u64).unwrap();
        let bytes = Bytes::open(&path).unwrap();
        assert_eq!(bytes.find_psb(), None);
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let of_file = maps.split_once(path.to_str().unwrap()).unwrap().1;
        let resident = of_file.lines().find_map(|line| line.strip_prefix("Rss:")).unwrap();
        let resident: usize = resident.trim().trim_end_matches(" kB").parse().unwrap();
        assert!(resident < SEARCHED >> 10, "{resident} KiB");
        for at in [0, SEARCHED - 1, SEARCHED - PSB.len(), 2 * SEARCHED - 7, size - PSB.len()] {
            std::os::unix::fs::FileExt::write_all_at(&file, &PSB, at as u64).unwrap();
            assert_eq!(Bytes::open(&path).unwrap().find_psb(), Some(at));
            std::os::unix::fs::FileExt::write_all_at(&file, &[0; PSB.len()], at as u64).unwrap();
        }
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_temporary_folder_that_takes_nothing_is_named() {
        let nowhere = Path::new("/proc/nowhere");
        let error = Bytes::join_in(nowhere, &parts(), 5).unwrap_err().to_string();
        let wanted = "the temporary folder /proc/nowhere (TMPDIR) is to take 6 bytes of the recording: No such file or directory";
        assert!(error.starts_with(wanted), "{error}");
    }
}
