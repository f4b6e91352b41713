//! Booleans: PLAIN, a bit each.

const AT_ONCE: usize = 16;

/// Encodes for each row whether any bit of `mask` is set.
pub fn flags(rows: &[u8], mask: u8, out: &mut Vec<u8>) {
    let begin = out.len();
    let bytes = rows.len().div_ceil(8);
    out.resize(begin + rows.len().div_ceil(AT_ONCE) * 2, 0);
    let whole = rows.chunks_exact(AT_ONCE);
    let mut last = [0; AT_ONCE];
    last[..whole.remainder().len()].copy_from_slice(whole.remainder());
    let all = whole.map(|rows| rows.try_into().expect("sixteen rows")).chain([&last]);
    for (put, rows) in out[begin..].chunks_exact_mut(2).zip(all) {
        put.copy_from_slice(&bits(rows, mask).to_le_bytes());
    }
    out.truncate(begin + bytes);
}

#[cfg(target_arch = "x86_64")]
fn bits(rows: &[u8; AT_ONCE], mask: u8) -> u16 {
    use std::arch::x86_64::{_mm_and_si128, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8};
    use std::arch::x86_64::{_mm_set1_epi8, _mm_setzero_si128};
    // SAFETY: all processors of this kind have SSE2, and what is loaded need not be aligned.
    unsafe {
        let set = _mm_and_si128(_mm_loadu_si128(rows.as_ptr().cast()), _mm_set1_epi8(mask as i8));
        !_mm_movemask_epi8(_mm_cmpeq_epi8(set, _mm_setzero_si128())) as u16
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn bits(rows: &[u8; AT_ONCE], mask: u8) -> u16 {
    rows.iter().rev().fold(0, |bits, row| bits << 1 | u16::from(row & mask != 0))
}
