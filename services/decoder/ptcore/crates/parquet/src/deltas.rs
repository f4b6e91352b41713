//! DELTA_BINARY_PACKED: differences from row to row, in blocks (Parquet format, "Encodings").

use crate::thrift::{varint, zigzag};

// What other writers choose, and therefore what readers are made for.
const BLOCK: usize = 128;
const MINIBLOCKS: usize = 4;
const MINIBLOCK: usize = BLOCK / MINIBLOCKS;

/// Numbers of which each is near the one before.
pub struct Deltas {
    first: u64,
    last: u64,
    count: usize,
    waiting: [i64; BLOCK],
    filled: usize,
    /// In whole bytes: what comes again and again comes as the same ones, which zstd finds.
    bytes: Vec<u8>,
    /// As few bits as they take.
    bits: Vec<u8>,
    begins: Ways,
    ways: Ways,
}

/// How numbers are encoded: of those that may vary by chance both ways, until it is known which is shorter.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Ways {
    Bytes,
    Bits,
    Both,
}

impl Default for Deltas {
    fn default() -> Self {
        Deltas::beginning(Ways::Bytes)
    }
}

impl Deltas {
    /// Of numbers that may vary by chance: `Packer` chooses.
    pub fn both_ways() -> Self {
        Deltas::beginning(Ways::Both)
    }

    fn beginning(ways: Ways) -> Self {
        let (bytes, bits) = (Vec::new(), Vec::new());
        Deltas { first: 0, last: 0, count: 0, waiting: [0; BLOCK], filled: 0, bytes, bits, begins: ways, ways }
    }

    /// Signed numbers are told as their bits.
    pub fn extend(&mut self, numbers: &[u64]) {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi2") {
            // SAFETY: the processor has both.
            return unsafe { self.extend_widely(numbers) };
        }
        self.extend_by(numbers)
    }

    /// The same, compiled for these processors: four differences in a register instead of two.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi2")]
    unsafe fn extend_widely(&mut self, numbers: &[u64]) {
        self.extend_by(numbers)
    }

    #[inline(always)]
    fn extend_by(&mut self, numbers: &[u64]) {
        let mut rest = numbers;
        if let (0, Some((&first, others))) = (self.count, rest.split_first()) {
            (self.first, self.last, self.count) = (first, first, 1);
            rest = others;
        }
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(BLOCK - self.filled));
            let mut last = self.last;
            for (delta, &number) in self.waiting[self.filled..].iter_mut().zip(now) {
                *delta = number.wrapping_sub(last) as i64;
                last = number;
            }
            self.last = last;
            self.filled += now.len();
            self.count += now.len();
            rest = later;
            if self.filled == BLOCK {
                self.pack();
            }
        }
    }

    /// Adds the encoded numbers to `out` and begins anew: in bytes, unless only bits were kept.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        self.pack();
        varint(out, BLOCK as u64);
        varint(out, MINIBLOCKS as u64);
        varint(out, self.count as u64);
        zigzag(out, self.first as i64);
        out.extend_from_slice(if self.ways == Ways::Bits { &self.bits } else { &self.bytes });
        self.bytes.clear();
        self.bits.clear();
        (self.count, self.ways) = (0, self.begins);
    }

    pub(crate) fn ways(&self) -> Ways {
        self.ways
    }

    /// What the blocks are in bytes and in bits.
    pub(crate) fn blocks(&self) -> (&[u8], &[u8]) {
        (&self.bytes, &self.bits)
    }

    /// From now on this way only, of both; until they begin anew.
    pub fn keep(&mut self, ways: Ways) {
        self.ways = ways;
    }

    /// Also a block that is not full: nothing may follow then.
    #[inline(always)]
    pub(crate) fn pack(&mut self) {
        let deltas = &self.waiting[..self.filled];
        if deltas.is_empty() {
            return;
        }
        let (least, most) =
            deltas.iter().fold((i64::MAX, i64::MIN), |(least, most), &delta| (least.min(delta), most.max(delta)));
        if self.ways != Ways::Bits {
            put_block(&mut self.bytes, deltas, base(least, most), |bits| bits.next_multiple_of(8));
        }
        if self.ways != Ways::Bytes {
            put_block(&mut self.bits, deltas, least, |bits| bits);
        }
        self.filled = 0;
    }
}

/// `width`: what so many bits take.
#[inline(always)]
fn put_block(out: &mut Vec<u8>, deltas: &[i64], base: i64, width: impl Fn(usize) -> usize) {
    zigzag(out, base);
    let widths = out.len();
    out.extend_from_slice(&[0; MINIBLOCKS]);
    for (number, miniblock) in deltas.chunks(MINIBLOCK).enumerate() {
        let all = miniblock.iter().fold(0, |all, &delta| all | delta.wrapping_sub(base) as u64);
        let width = width((u64::BITS - all.leading_zeros()) as usize);
        out[widths + number] = width as u8;
        if width % 8 == 0 {
            put(out, miniblock, base, width / 8);
        } else {
            put_bits(out, miniblock, base, width);
        }
    }
}

/// What is taken from the deltas of a block. The least of them will do, but anything below will, too: what is the same in
/// most blocks leaves equal deltas equal, which zstd can make use of.
#[inline(always)]
fn base(least: i64, most: i64) -> i64 {
    let steady = if least >= 0 { 0 } else { -1 << (i64::BITS - (!least).leading_zeros()) };
    let width = |base: i64| bytes(most.wrapping_sub(base) as u64);
    if width(steady) > width(least) {
        least
    } else {
        steady
    }
}

#[inline(always)]
fn bytes(most: u64) -> usize {
    (u64::BITS - most.leading_zeros()).div_ceil(8) as usize
}

#[inline(always)]
fn put(out: &mut Vec<u8>, miniblock: &[i64], base: i64, bytes: usize) {
    match bytes {
        0 => {}
        1 => put_wide::<1>(out, miniblock, base),
        2 => put_wide::<2>(out, miniblock, base),
        3 => put_wide::<3>(out, miniblock, base),
        4 => put_wide::<4>(out, miniblock, base),
        5 => put_wide::<5>(out, miniblock, base),
        6 => put_wide::<6>(out, miniblock, base),
        7 => put_wide::<7>(out, miniblock, base),
        _ => put_wide::<8>(out, miniblock, base),
    }
}

/// The last miniblock is filled up, with zeros.
#[inline(always)]
fn put_wide<const BYTES: usize>(out: &mut Vec<u8>, miniblock: &[i64], base: i64) {
    let mut packed = [[0; BYTES]; MINIBLOCK];
    for (place, &delta) in packed.iter_mut().zip(miniblock) {
        place.copy_from_slice(&delta.wrapping_sub(base).to_le_bytes()[..BYTES]);
    }
    out.extend_from_slice(packed.as_flattened());
}

/// As `put_wide`, of any width.
#[inline(always)]
fn put_bits(out: &mut Vec<u8>, miniblock: &[i64], base: i64, bits: usize) {
    let mut numbers = [0; MINIBLOCK];
    for (place, &delta) in numbers.iter_mut().zip(miniblock) {
        *place = delta.wrapping_sub(base) as u64;
    }
    let mut packed = [0; MINIBLOCK * size_of::<u64>()];
    if bits < 32 {
        // Two of them are in one register, and eight are whole bytes.
        let pair = |some: &[u64]| some[0] | some[1] << bits;
        let four = |some: &[u64]| u128::from(pair(&some[..2])) | u128::from(pair(&some[2..])) << (2 * bits);
        for (number, eight) in numbers.chunks_exact(8).enumerate() {
            let begin = number * bits;
            packed[begin..][..16].copy_from_slice(&four(&eight[..4]).to_le_bytes());
            // Four of an odd width end in the middle of a byte.
            let middle = begin + bits / 2;
            let later = four(&eight[4..]) << (4 * (bits % 2)) | u128::from(packed[middle]);
            packed[middle..][..16].copy_from_slice(&later.to_le_bytes());
        }
    } else {
        let (mut waiting, mut filled, mut at) = (0_u128, 0, 0);
        for number in numbers {
            waiting |= u128::from(number) << filled;
            filled += bits;
            if filled >= 64 {
                packed[at..][..8].copy_from_slice(&(waiting as u64).to_le_bytes());
                (waiting, filled, at) = (waiting >> 64, filled - 64, at + 8);
            }
        }
        packed[at..][..8].copy_from_slice(&(waiting as u64).to_le_bytes());
    }
    out.extend_from_slice(&packed[..MINIBLOCK * bits / 8]);
}

#[cfg(test)]
mod tests {
    use super::Deltas;

    #[test]
    fn every_processor_writes_the_same() {
        let mut number = 1_u64;
        for bits in 1..=64 {
            let (mut here, mut anywhere) = (Deltas::both_ways(), Deltas::both_ways());
            for count in [1, 77, 1000] {
                let mut random = || {
                    number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    number >> (64 - bits)
                };
                let numbers: Vec<_> = std::iter::repeat_with(&mut random).take(count).collect();
                here.extend(&numbers);
                anywhere.extend_by(&numbers);
            }
            assert!(here.blocks() == anywhere.blocks(), "{bits} bits");
        }
    }
}
