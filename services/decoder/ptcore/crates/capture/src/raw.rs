//! Packets in a file of their own, with code given by hand.

use crate::{Bytes, Capture, CaptureError, Kind, Of, Options, RawImage, Stream, View};
use pt_image::{Binary, Image};
use std::path::Path;
use std::sync::Arc;

pub fn read(path: &Path, data: Bytes, options: &Options) -> Result<Capture, CaptureError> {
    let mut capture = Capture::new(Kind::Raw);
    let mut image = Image::new();
    for part in &options.images {
        add(&mut image, part)?;
    }
    capture.images.push(image);
    let view = capture.view(View { pid: 0, tid: 0, image: 0, epoch: 0 });
    capture.streams.push(Stream {
        name: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        data,
        of: Of::Thread { pid: 0, tid: 0 },
        switches: Vec::new(),
        image: 0,
        epochs: vec![(0, view)],
    });
    Ok(capture)
}

/// Puts a part of a file into the image: with its symbols when it is an ELF file.
pub(crate) fn add(image: &mut Image, part: &RawImage) -> Result<(), CaptureError> {
    let path = &part.file;
    let bytes = Bytes::open(path).map_err(|error| CaptureError::unreadable(path, error))?;
    let there = (bytes.len() as u64).saturating_sub(part.offset);
    let size = part.size.unwrap_or(there);
    if size == 0 || size > there {
        let what =
            format!("{size:#x} bytes from offset {:#x} are wanted, the file has {:#x}", part.offset, bytes.len());
        return Err(CaptureError::option(&path.display().to_string(), what));
    }
    let added = match Binary::open(path, None, &|_| None) {
        Ok(binary) => {
            let name = path.to_string_lossy();
            image.map(0, part.address, size, part.offset, &Arc::new(binary), &name)
        }
        Err(_) => {
            let start = part.offset as usize;
            image.code(0, part.address, bytes[start..start + size as usize].to_vec())
        }
    };
    added.map_err(|error| CaptureError::option(&path.display().to_string(), error.to_string()))
}
