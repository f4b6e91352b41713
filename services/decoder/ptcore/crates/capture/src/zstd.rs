//! All frames of a zstd file.

use ruzstd::decoding::{FrameDecoder, StreamingDecoder};
use std::io::{self, Read};

const MAGIC: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// Whether the file is packed with zstd. Frames that are to be skipped have others of LZ4 behind them, too.
pub fn is_file(data: &[u8]) -> bool {
    behind_skipped(data).starts_with(MAGIC)
}

/// Reads what the frames hold (RFC 8878, section 3.1): several compressors write one each. Ends where no frame begins.
pub struct Frames<'d> {
    frame: Option<StreamingDecoder<&'d [u8], FrameDecoder>>,
    /// Behind those that were read.
    pub rest: &'d [u8],
}

impl<'d> Frames<'d> {
    pub fn new(data: &'d [u8]) -> Self {
        Frames { frame: None, rest: data }
    }
}

impl Read for Frames<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(frame) = &mut self.frame {
                let read = frame.read(buffer)?;
                if read > 0 || buffer.is_empty() {
                    return Ok(read);
                }
                self.rest = frame.get_ref();
                // The decoder leaves that to its user.
                let told = frame.decoder.get_checksum_from_data();
                if told.is_some() && told != frame.decoder.get_calculated_checksum() {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "the checksum is that of another content"));
                }
            }
            self.rest = behind_skipped(self.rest);
            if !self.rest.starts_with(MAGIC) {
                self.frame = None;
                return Ok(0);
            }
            self.frame = Some(StreamingDecoder::new(self.rest).map_err(io::Error::other)?);
        }
    }
}

/// What stands behind frames of other programs, which are to be skipped (RFC 8878, section 3.1.2).
fn behind_skipped(mut data: &[u8]) -> &[u8] {
    while let [0x50..=0x5f, 0x2a, 0x4d, 0x18, a, b, c, d, rest @ ..] = data {
        let Some(behind) = rest.get(u32::from_le_bytes([*a, *b, *c, *d]) as usize..) else { break };
        data = behind;
    }
    data
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unpacked::tests::zstd;

    /// All that is read, and how many bytes are left behind it.
    fn read(packed: &[u8]) -> io::Result<(Vec<u8>, usize)> {
        let (mut frames, mut bytes) = (Frames::new(packed), Vec::new());
        frames.read_to_end(&mut bytes)?;
        Ok((bytes, frames.rest.len()))
    }

    #[test]
    fn frames_that_are_to_be_skipped_are_skipped_wherever_they_stand() {
        let (first, last) = (zstd(&[7; 500]), zstd(&[8; 500]));
        let skipped = |kind| [&[kind, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"any"].concat();
        let content = [[7; 500], [8; 500]].concat();
        let whole = [skipped(0x50), skipped(0x5f), first, skipped(0x57), last, skipped(0x58)].concat();
        assert!(is_file(&whole));
        assert_eq!(read(&whole).unwrap(), (content.clone(), 0));
        // One that is cut off is left.
        assert_eq!(read(&whole[..whole.len() - 1]).unwrap(), (content, 10));
        assert!(!is_file(&skipped(0x50)));
    }

    #[test]
    fn a_frame_whose_checksum_is_that_of_another_content_is_damaged() {
        let mut packed = zstd(&[7; 500]);
        assert_eq!(read(&packed).unwrap().0, [7; 500]);
        *packed.last_mut().unwrap() ^= 1;
        let told = read(&packed).unwrap_err().to_string();
        assert_eq!(told, "the checksum is that of another content");
    }
}
