//! Where a kcore has no code: /proc/kcore reads as zeros where nothing is mapped (`vread` of Linux), as between modules, and
//! memory that BPF programs come to is filled with INT3 (`jit_fill_hole`, `bpf_fill_ill_insns`).

const PAGE: u64 = 4096;
const FILLED: [u8; 2] = [0, 0xcc];

/// Whole pages of such bytes: address and size.
pub fn of(address: u64, code: &[u8]) -> Vec<(u64, u64)> {
    let skipped = (address.wrapping_neg() % PAGE) as usize;
    let mut found: Vec<(u64, u64)> = Vec::new();
    for (number, page) in code.get(skipped..).unwrap_or_default().chunks_exact(PAGE as usize).enumerate() {
        if !FILLED.iter().any(|filled| page.iter().all(|byte| byte == filled)) {
            continue;
        }
        let start = address.wrapping_add(skipped as u64 + number as u64 * PAGE);
        match found.last_mut() {
            Some((last, size)) if last.wrapping_add(*size) == start => *size += PAGE,
            _ => found.push((start, PAGE)),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_pages_of_zeros_and_of_int3_are_no_code() {
        let mut code = vec![0; 6 * 4096];
        code[4096] = 0x90;
        code[4 * 4096..].fill(0xcc);
        assert_eq!(of(0x10_0000, &code), [(0x10_0000, 4096), (0x10_2000, 4 * 4096)]);
        assert_eq!(of(0x10_0008, &code[8..]), [(0x10_2000, 4 * 4096)]);
        assert_eq!(of(0x10_0008, &code[..100]), []);
    }
}
