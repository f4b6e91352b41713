//! What stands behind the first bytes of a packet.

/// So many bytes from `at` on as a number; `None` when they are not all there.
#[inline(always)]
pub fn number(rest: &[u8], at: usize, size: usize) -> Option<u64> {
    if let Some(word) = rest.get(at..at + 8) {
        let word = u64::from_le_bytes(word.try_into().ok()?);
        return Some(if size < 8 { word & ((1 << (8 * size)) - 1) } else { word });
    }
    let bytes = rest.get(at..at + size)?;
    let mut word = [0; 8];
    word[..size].copy_from_slice(bytes);
    Some(u64::from_le_bytes(word))
}
