//! Whether a binary is the one that a recording names.

use pt_image::{hex, Binary};

/// Of longer build ids perf notes so many digits, the first 20 bytes (`elf_read_build_id` in Linux's
/// tools/perf/util/symbol-elf.c).
const NOTED: usize = 2 * 20;

/// In old files perf pads shorter ones with zeros to as many.
pub fn same_id(one: &str, other: &str) -> bool {
    let known = if one.len().min(other.len()) == NOTED { NOTED } else { usize::MAX };
    let plain = |id: &str| id.get(..known).unwrap_or(id).trim_end_matches('0').to_owned();
    !one.is_empty() && plain(one) == plain(other)
}

/// Whether the binary is the one of this build id, or of the checksum that LLDB takes in place of one.
pub fn is(binary: &Binary, id: &str) -> bool {
    let same = |checksum: u32| checksums(id).is_some_and(|wanted| wanted.contains(&checksum));
    same_id(binary.build_id(), id) || (checksums(id).is_some() && binary.checksum().is_some_and(same))
}

/// Whether the binary is another one: of one that has nothing of that kind, or where none is wanted, nobody knows.
pub fn is_other(binary: &Binary, id: &str) -> bool {
    let has_some = !binary.build_id().is_empty() || checksums(id).is_some();
    !id.is_empty() && has_some && !is(binary, id)
}

/// What a binary has that is another one.
pub fn has_other(binary: &Binary, id: &str) -> String {
    let path = binary.path().display();
    match binary.checksum() {
        Some(checksum) if checksums(id).is_some() => {
            format!("{path} has none; its checksum is {}", hex(&checksum.to_le_bytes()))
        }
        Some(_) => format!("{path} has none"),
        None => format!("{path} has {}", binary.build_id()),
    }
}

/// The checksums that an id of four bytes may be, behind which older ones have zeros: its bytes as they stand in memory, or as a
/// number.
fn checksums(id: &str) -> Option<[u32; 2]> {
    let digits = id.get(..8).filter(|_| id.len() == 8 || (id.len() == 32 && id.ends_with(&"0".repeat(24))))?;
    u32::from_str_radix(digits, 16).ok().map(|number| [number.swap_bytes(), number])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_long_build_id_perf_notes_the_first_twenty_bytes() {
        let long = "0123456789abcdef".repeat(4);
        assert!(same_id(&long[..40], &long) && same_id(&long, &long[..40]));
        assert!(!same_id(&long[..40], &long.replace("4567", "4566")));
        // No other size is a part of a longer one.
        assert!(!same_id(&long[..32], &long) && !same_id(&long[..42], &long));
        assert!(!same_id(&long, &format!("{}ff", &long[..62])));
    }

    #[test]
    fn perf_may_have_padded_a_short_build_id_with_zeros() {
        let short = "0123456789abcdef".repeat(2);
        assert!(same_id(&format!("{short}00000000"), &short));
        assert!(!same_id(&format!("{short}00000001"), &short) && !same_id("", ""));
    }
}
