//! Booleans: PLAIN, a bit each.

/// Encodes for each row whether any bit of `mask` is set.
pub fn flags(rows: &[u8], mask: u8, out: &mut Vec<u8>) {
    // Bit 0 of each byte to the bit of its number in the highest byte.
    const GATHER: u64 = 0x0102_0408_1020_4080;
    let whole = rows.chunks_exact(8);
    let rest = whole.remainder();
    let bits = |rows: &[u8]| {
        let rows = u64::from_le_bytes(rows.try_into().expect("eight rows"));
        let set = (0..8).filter(|bit| mask >> bit & 1 == 1).fold(0, |set, bit| set | rows >> bit);
        ((set & 0x0101_0101_0101_0101).wrapping_mul(GATHER) >> 56) as u8
    };
    out.extend(whole.map(bits));
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        out.push(bits(&last));
    }
}
