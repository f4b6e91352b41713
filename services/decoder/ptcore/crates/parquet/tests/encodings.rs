//! What is encoded, decoded by the words of the format.

use pt_parquet::{flags, indices, Deltas, File, Kind, Numbers, Packer, Runs, Ways};

struct Bytes<'b>(&'b [u8]);

impl Bytes<'_> {
    fn take(&mut self, count: usize) -> &[u8] {
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        taken
    }

    fn varint(&mut self) -> u64 {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = self.take(1)[0];
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return number;
            }
            shift += 7;
        }
    }

    fn zigzag(&mut self) -> i64 {
        let number = self.varint();
        (number >> 1) as i64 ^ -((number & 1) as i64)
    }

    fn whole(&mut self, bytes: usize) -> u64 {
        let mut whole = [0; 8];
        whole[..bytes].copy_from_slice(self.take(bytes));
        u64::from_le_bytes(whole)
    }
}

/// DELTA_BINARY_PACKED.
fn deltas(encoded: &[u8]) -> Vec<u64> {
    let mut bytes = Bytes(encoded);
    let (block, miniblocks, count) = (bytes.varint() as usize, bytes.varint() as usize, bytes.varint() as usize);
    let mut numbers = vec![bytes.zigzag() as u64];
    while numbers.len() < count {
        let least = bytes.zigzag();
        let widths = bytes.take(miniblocks).to_vec();
        for width in widths {
            if numbers.len() >= count {
                assert_eq!(width, 0, "a miniblock that is not needed");
            }
            if numbers.len() < count {
                let (width, of_each) = (usize::from(width), block / miniblocks);
                let packed = bytes.take(width * of_each / 8).to_vec();
                for number in 0..of_each {
                    let bit = |at: usize| u64::from(packed[at / 8] >> (at % 8) & 1);
                    let delta = (0..width).fold(0, |delta, place| delta | bit(number * width + place) << place);
                    numbers.push(numbers[numbers.len() - 1].wrapping_add(least as u64).wrapping_add(delta));
                }
            }
        }
    }
    assert!(bytes.0.is_empty());
    numbers.truncate(count);
    numbers
}

/// The hybrid of runs and packed numbers, with its width in front.
fn places(encoded: &[u8], rows: usize) -> Vec<u64> {
    let mut bytes = Bytes(encoded);
    let width = bytes.take(1)[0] as usize / 8;
    let mut places = Vec::new();
    while places.len() < rows {
        let head = bytes.varint() as usize;
        if head & 1 == 1 {
            (0..head / 2 * 8).for_each(|_| places.push(bytes.whole(width)));
        } else {
            let place = bytes.whole(width);
            places.extend(std::iter::repeat_n(place, head / 2));
        }
    }
    assert!(bytes.0.is_empty());
    places.truncate(rows);
    places
}

/// Numbers that follow no rule, the same each time (xorshift, Marsaglia 2003).
fn random(bits: u32) -> impl Iterator<Item = u64> {
    std::iter::successors(Some(88_172_645_463_325_252_u64), |&state| {
        let state = state ^ state << 13;
        let state = state ^ state >> 7;
        Some(state ^ state << 17)
    })
    .map(move |number| number >> (64 - bits))
}

#[test]
fn differences_of_any_width_come_back() {
    // Both ways first, and one of them behind so many.
    for (ways, both) in [(Ways::Bytes, 0), (Ways::Bits, 0), (Ways::Bytes, 300), (Ways::Bits, 300)] {
        let mut column = Deltas::both_ways();
        let mut come_back = |numbers: &[u64]| {
            let mut encoded = Vec::new();
            let (first, later) = numbers.split_at(numbers.len().min(both));
            first.chunks(77).for_each(|some| column.extend(some));
            column.keep(ways);
            later.chunks(77).for_each(|some| column.extend(some));
            column.finish(&mut encoded);
            assert_eq!(deltas(&encoded), numbers);
        };
        for bits in 1..=64 {
            for count in [1, 2, 31, 32, 33, 128, 129, 130, 1000] {
                come_back(&random(bits).take(count).collect::<Vec<_>>());
            }
        }
        come_back(&[0, u64::MAX, 1 << 63, (1 << 63) - 1, 0, 1, u64::MAX, u64::MAX]);
    }
}

/// What the times of a row group take in a file: by steps that vary by chance, and by steps that come again and again.
#[test]
fn times_take_their_bits_or_what_zstd_makes_of_them() {
    let size = |steps: Vec<u64>| {
        let numbers: Vec<_> = steps.iter().scan(0, |time, step| Some(std::mem::replace(time, *time + step))).collect();
        let (mut column, mut packer) = (Deltas::both_ways(), Packer::new(1).unwrap());
        for some in numbers.chunks(1000) {
            column.extend(some);
            packer.choose_early(&mut column).unwrap();
        }
        let chunk = packer.shorter_deltas(numbers.len(), &mut column).unwrap();
        File::new(&[("start_ns", Kind::Int64)]).group(numbers.len(), &[chunk]).len()
    };
    let rows = 1 << 16;
    for bits in 1..=40 {
        // For each block the least of its differences, and the widths of its four parts.
        let most = rows * bits as usize / 8 + rows / 128 * (6 + 4) + 100;
        let found = size(random(bits).take(rows).collect());
        assert!(found <= most, "{found} bytes for {bits} bits");
    }
    let found = size([1, 300, 2, 500, 7].into_iter().cycle().take(rows).collect());
    assert!(found < rows / 50, "{found} bytes for what repeats");
}

#[test]
fn what_grows_evenly_takes_next_to_nothing() {
    let (mut column, mut encoded) = (Deltas::default(), Vec::new());
    column.extend(&(0..100_000).map(|number| 7 * number).collect::<Vec<_>>());
    column.finish(&mut encoded);
    assert!(encoded.len() < 5_000, "{}", encoded.len());
}

#[test]
fn places_come_back() {
    for most in [0, 1, 255, 256, 65_535, 65_536, 1 << 24, u32::MAX] {
        let expected: Vec<_> = random(32).take(1001).map(|number| (number % (u64::from(most) + 1)) as u32).collect();
        let mut encoded = Vec::new();
        indices(&expected, most, &mut encoded);
        assert!(places(&encoded, 1001).into_iter().eq(expected.into_iter().map(u64::from)), "{most}");
    }
}

#[test]
fn runs_come_back() {
    let (mut runs, mut encoded) = (Runs::default(), Vec::new());
    for (number, rows) in [(5, 3), (5, 2), (-1, 0), (-1, 300), (5, 1)] {
        runs.push(number, rows);
    }
    assert_eq!(runs.finish(&mut encoded), [-1, 5]);
    let found = places(&encoded, 306);
    assert_eq!((&found[..5], &found[5..305], &found[305..]), (&[1; 5][..], &[0; 300][..], &[1][..]));
}

#[test]
fn few_numbers_have_places_and_many_are_told_themselves() {
    let mut column = Numbers::default();
    // Also the second time, when something was there before.
    for (bits, few) in [(3, true), (12, true), (40, true), (64, false), (16, true), (60, false), (5, true)] {
        let numbers: Vec<_> = random(bits).take(if few { 60_000 } else { 90_000 }).collect();
        let mut encoded = Vec::new();
        numbers.chunks(1000).for_each(|some| column.extend(some));
        match column.finish(&mut encoded) {
            Some(values) => {
                assert!(few);
                let found = places(&encoded, numbers.len()).into_iter().map(|place| values[place as usize]);
                assert!(found.eq(numbers), "{bits} bits");
            }
            None => {
                assert!(!few);
                assert_eq!(deltas(&encoded), numbers, "{bits} bits");
            }
        }
    }
}

#[test]
fn flags_come_back() {
    let rows: Vec<_> = random(5).take(1003).map(|row| row as u8).collect();
    for mask in 1..32 {
        let mut encoded = Vec::new();
        flags(&rows, mask, &mut encoded);
        assert_eq!(encoded.len(), 126);
        for (number, row) in rows.iter().enumerate() {
            assert_eq!(encoded[number / 8] >> (number % 8) & 1 == 1, row & mask != 0, "row {number}, mask {mask}");
        }
    }
}

#[test]
fn a_level_that_zstd_is_not_compiled_for_is_refused() {
    assert!((1..=3).all(|level| Packer::new(level).is_ok()));
    let Err(error) = Packer::new(4) else { panic!("it would pack as level 3 does") };
    assert_eq!(error.to_string(), "zstd is compiled for levels up to 3, not for 4");
}
