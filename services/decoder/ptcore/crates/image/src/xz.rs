//! Files that are packed with xz: the one in `.gnu_debugdata`, and kernel modules.

use lzma_rust2::XzReader;
use std::io::Read;

/// More than this is not unpacked; the largest of Fedora's are some megabytes.
const MAX_UNPACKED: u64 = 1 << 28;
/// The dictionary's limit in KiB: `xz -9` needs 65 MiB.
const MAX_DICTIONARY: u32 = 1 << 17;

/// What xz packed; `None` when the data are damaged or too large.
pub fn unpack(packed: &[u8]) -> Option<Vec<u8>> {
    let mut unpacked = Vec::new();
    let reader = XzReader::new_mem_limit(packed, true, MAX_DICTIONARY);
    let size = reader.take(MAX_UNPACKED + 1).read_to_end(&mut unpacked).ok()?;
    (size as u64 <= MAX_UNPACKED).then_some(unpacked)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `printf mini | xz` prints.
    const PACKED: &[u8] =
        b"\xfd\x37\x7a\x58\x5a\x00\x00\x04\xe6\xd6\xb4\x46\x02\x00\x21\x01\x16\x00\x00\x00\x74\x2f\xe5\xa3\x01\
        \x00\x03\x6d\x69\x6e\x69\x00\xcb\x12\x53\xf4\x5d\xd0\x21\x35\x00\x01\x1c\x04\x6f\x2c\x9c\xc1\x1f\xb6\
        \xf3\x7d\x01\x00\x00\x00\x00\x04\x59\x5a";

    #[test]
    fn what_xz_packed_is_unpacked() {
        assert_eq!(unpack(PACKED).as_deref(), Some(&b"mini"[..]));
    }

    #[test]
    fn damage_is_noticed() {
        for at in 0..PACKED.len() {
            let mut damaged = PACKED.to_vec();
            damaged[at] ^= 0x10;
            assert_eq!(unpack(&damaged), None, "byte {at}");
        }
        assert_eq!(unpack(&PACKED[..PACKED.len() / 2]), None);
    }
}
