//! Packets in a file of their own, with code given by hand and records of the kernel beside them.

use crate::files::{search, IS_DEBUG_FILE};
use crate::spaces::{Content, Mapping, Spaces};
use crate::timeline::attach;
use crate::{perf, Bytes, Capture, CaptureError, Kind, Of, Options, RawImage, Stream};
use pt_image::Binary;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub fn read(path: &Path, data: Bytes, options: &Options) -> Result<Capture, CaptureError> {
    let mut capture = Capture::new(Kind::Raw);
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    capture.streams.push(Stream::new(name, data, Of::Thread { pid: 0, tid: 0 }));
    let code = options.images.iter().map(|part| mapping(part, &options.symbols)).collect::<Result<Vec<_>, _>>()?;
    if !options.sideband.is_empty() {
        perf::attach_loose(&mut capture, code, options)?;
        return Ok(capture);
    }
    let mut spaces = Spaces::default();
    for mapping in code {
        spaces.map(0, 0, mapping);
    }
    attach(&mut capture, &spaces, true, options);
    Ok(capture)
}

/// A part of a file: with its symbols when it is an ELF file.
fn mapping(part: &RawImage, folders: &[PathBuf]) -> Result<Mapping, CaptureError> {
    let path = &part.file;
    let bytes = Bytes::open(path).map_err(|error| CaptureError::unreadable(path, error))?;
    let there = (bytes.len() as u64).saturating_sub(part.offset);
    let size = part.size.unwrap_or(there);
    let bad = |what| Err(CaptureError::option(&path.display().to_string(), what));
    if part.size == Some(0) {
        return bad("an image of no bytes is none; without a size it is the rest of the file".to_owned());
    }
    if size == 0 || size > there {
        let wanted = part.size.map_or("bytes".to_owned(), |size| format!("{size:#x} bytes"));
        return bad(format!("{wanted} from offset {:#x} are wanted, the file has {:#x}", part.offset, bytes.len()));
    }
    if part.address.checked_add(size).is_none() {
        let reach = "reach to the last address, 0xffffffffffffffff, or beyond: no code can be there";
        return bad(format!("{size:#x} bytes from address {:#x} on {reach}", part.address));
    }
    let content = match Binary::load(path, &search(folders)) {
        Ok(binary) if binary.is_debug_file() => return bad(IS_DEBUG_FILE.to_owned()),
        Ok(binary) => Content::File { binary: Arc::new(binary), offset: part.offset },
        Err(_) => {
            let start = part.offset as usize;
            Content::Code(bytes[start..start + size as usize].into())
        }
    };
    Ok(Mapping { address: part.address, size, name: path.to_string_lossy().into_owned(), content })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf;
    use crate::temporary::TemporaryFile;

    #[test]
    fn a_debug_file_is_no_image() {
        let refusal = |file: Vec<u8>| {
            let file = TemporaryFile::new(&file).unwrap();
            let part = RawImage { file: file.0.clone(), offset: 0x1000, size: Some(2), address: 0x40_1000 };
            mapping(&part, &[]).err().map(|error| error.to_string())
        };
        assert_eq!(refusal(elf::file(0x1000, &[0x90, 0xc3], &[])), None);
        let refused = refusal(elf::debug_file(0x1000, &[0x90, 0xc3], &[])).unwrap();
        assert!(refused.ends_with(IS_DEBUG_FILE), "{refused}");
    }
}
