//! RLE_DICTIONARY: the place of each value among those of the dictionary page.

use crate::thrift::varint;

/// Encodes places as one run of whole bytes. `most`: the greatest of them.
pub fn indices<P: Copy + Into<u32>>(places: &[P], most: u32, out: &mut Vec<u8>) {
    let bytes = bytes(most);
    begin(out, bytes, places.len());
    out.reserve(places.len().next_multiple_of(8) * bytes);
    match bytes {
        1 => out.extend(places.iter().map(|&place| place.into() as u8)),
        2 => put::<P, 2>(places, out),
        3 => put::<P, 3>(places, out),
        _ => put::<P, 4>(places, out),
    }
    out.resize(out.len() + places.len().next_multiple_of(8) * bytes - places.len() * bytes, 0);
}

/// Encodes runs of a place.
pub fn runs(runs: &[(u32, usize)], most: u32, out: &mut Vec<u8>) {
    let bytes = bytes(most);
    out.push(bytes as u8 * 8);
    for &(place, count) in runs {
        varint(out, (count as u64) << 1);
        out.extend_from_slice(&place.to_le_bytes()[..bytes]);
    }
}

/// The width, and the head of a run that is packed: in groups of eight.
fn begin(out: &mut Vec<u8>, bytes: usize, rows: usize) {
    out.push(bytes as u8 * 8);
    varint(out, (rows.div_ceil(8) as u64) << 1 | 1);
}

fn put<P: Copy + Into<u32>, const BYTES: usize>(places: &[P], out: &mut Vec<u8>) {
    const AT_ONCE: usize = 64;
    for some in places.chunks(AT_ONCE) {
        let mut packed = [[0; BYTES]; AT_ONCE];
        for (put, &place) in packed.iter_mut().zip(some) {
            put.copy_from_slice(&place.into().to_le_bytes()[..BYTES]);
        }
        out.extend_from_slice(packed[..some.len()].as_flattened());
    }
}

fn bytes(most: u32) -> usize {
    // A width of nothing is allowed, but few readers are tried with it.
    ((u32::BITS - most.leading_zeros()).div_ceil(8) as usize).max(1)
}
