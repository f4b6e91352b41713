//! Booleans: PLAIN, a bit each.

const AT_ONCE: usize = 8;

/// Encodes for each row whether any bit of `mask` is set.
pub fn flags(rows: &[u8], mask: u8, out: &mut Vec<u8>) {
    let whole = rows.chunks_exact(AT_ONCE);
    let mut last = [0; AT_ONCE];
    last[..whole.remainder().len()].copy_from_slice(whole.remainder());
    out.extend(whole.map(|rows| bits(rows.try_into().expect("eight rows"), mask)));
    if rows.len() % AT_ONCE != 0 {
        out.push(bits(last, mask));
    }
}

/// In one word: a byte with a bit of the mask gets its highest one, and the product has those of all bytes in its highest byte.
fn bits(rows: [u8; AT_ONCE], mask: u8) -> u8 {
    const LOW: u64 = u64::from_le_bytes([0x7f; AT_ONCE]);
    let set = u64::from_le_bytes(rows) & u64::from_le_bytes([mask; AT_ONCE]);
    let highest = (((set & LOW) + LOW) | set) & !LOW;
    ((highest >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8
}
