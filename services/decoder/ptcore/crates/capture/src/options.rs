//! What the caller knows beside the recording.

use crate::CaptureError;
use std::path::PathBuf;
use std::str::FromStr;

/// Everything here is optional.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Family, model and stepping of the recording processor; wins over what the recording says.
    pub cpu: Option<(u16, u8, u8)>,
    /// Code for a recording that holds none.
    pub images: Vec<RawImage>,
    /// Folders in which binaries of other machines are looked for, by build id, path and name.
    pub symbols: Vec<PathBuf>,
    /// Files of perf event records that belong to a raw packet file.
    pub sideband: Vec<PathBuf>,
    /// Timing parameters for a recording that holds none.
    pub timing: Option<pt_flow::Config>,
    /// A kernel as an ELF file with its symbols, and the `/proc/kallsyms` and `/proc/kcore` of the recorded boot.
    pub vmlinux: Option<PathBuf>,
    pub kallsyms: Option<PathBuf>,
    pub kcore: Option<PathBuf>,
    /// Nobody asks who ran: streams are not looked through for where their threads change.
    pub packets_only: bool,
    /// Of large streams that stand in pieces only the beginnings are put together (`Stream::cut_from`).
    pub beginnings: bool,
    /// Where threads change is found while a stream is listed, by [`Capture::decode`](crate::Capture::decode).
    pub as_listed: bool,
}

/// A part of a file that stood in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawImage {
    pub file: PathBuf,
    pub offset: u64,
    /// The rest of the file when `None`.
    pub size: Option<u64>,
    pub address: u64,
}

/// `FILE:OFFSET:SIZE:ADDRESS`, `FILE:OFFSET:ADDRESS` or `FILE:ADDRESS`, numbers decimal or with `0x`.
impl FromStr for RawImage {
    type Err = CaptureError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = |what: String| CaptureError::option(text, what);
        let mut parts: Vec<_> = text.split(':').collect();
        let numbers = parts.iter().rev().take(3).take_while(|part| number(part).is_some()).count();
        let numbers: Vec<_> = parts.split_off(parts.len() - numbers).into_iter().filter_map(number).collect();
        let file = parts.join(":");
        let (offset, size, address) = match numbers[..] {
            [address] => (0, None, address),
            [offset, address] => (offset, None, address),
            [offset, size, address] => (offset, Some(size), address),
            _ => return Err(bad("an image is FILE:OFFSET:SIZE:ADDRESS, such as a.out:0x1000:0x500:0x401000".into())),
        };
        if file.is_empty() {
            return Err(bad("an image needs a file before its numbers".into()));
        }
        Ok(RawImage { file: file.into(), offset, size, address })
    }
}

/// Decimal, or hexadecimal behind `0x`.
pub(crate) fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_raw_image_is_a_file_and_up_to_three_numbers() {
        let image = |text: &str| text.parse::<RawImage>().map(|image| (image.offset, image.size, image.address));
        assert_eq!(image("a.out:0x1000:0x27:0x401000").unwrap(), (0x1000, Some(0x27), 0x401000));
        assert_eq!(image("a.out:16:0x1000").unwrap(), (16, None, 0x1000));
        assert_eq!(image("a.out:4096").unwrap(), (0, None, 4096));
        assert_eq!("c:x:1:2:3".parse::<RawImage>().unwrap().file, PathBuf::from("c:x"));
        assert!(image("a.out").unwrap_err().to_string().contains("FILE:OFFSET:SIZE:ADDRESS"));
        assert!(image(":0x10").is_err());
    }
}
