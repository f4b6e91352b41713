//! The packet at which reading can begin, and the one that says that packets were lost.

/// The sixteen bytes of a PSB packet.
pub const PSB: [u8; 16] =
    [0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82];

/// The two bytes of an OVF packet.
pub const OVF: [u8; 2] = [0x02, 0xf3];

/// The offsets of the PSBs at or after `from`, none within another.
pub fn psbs(data: &[u8], from: usize) -> impl Iterator<Item = usize> + '_ {
    std::iter::successors(find_psb(data, from), |psb| find_psb(data, psb + PSB.len()))
}

/// The offset of the first whole PSB at or after `from`.
pub fn find_psb(data: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    while at + PSB.len() <= data.len() {
        let window = &data[at..at + PSB.len()];
        if window == PSB {
            return Some(at);
        }
        // A PSB that begins inside the window holds an 82 at every other place up to its end.
        at += if window[15] == 0x82 || window[15] == 0x02 { 1 } else { PSB.len() };
    }
    None
}
