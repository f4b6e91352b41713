//! What paths hold, in one number, so that it adds up in one addition.

/// Blocks of one path: bounds runs of direct jumps.
pub const MOST_STEPS: usize = 64;
/// Bits of each count, from the lowest: branches, compressed returns, calls, other returns; what is above are instructions.
const BITS: [u32; 4] = [11, 11, 13, 7];

/// Conditional branches, compressed returns, calls, other returns, instructions.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally(u64);

impl Tally {
    pub const NONE: Tally = Tally(0);

    /// Sums may hold this many paths.
    pub const MOST: u32 = 63;

    pub fn of(counts: [u32; 5]) -> Tally {
        let mut at = 0;
        Tally(counts.into_iter().zip(BITS.into_iter().chain([0])).fold(0, |sum, (count, bits)| {
            let shifted = u64::from(count) << at;
            at += bits;
            sum | shifted
        }))
    }

    #[inline(always)]
    pub fn add(&mut self, other: Tally) {
        self.0 += other.0;
    }

    #[inline(always)]
    pub fn split(self) -> [u64; 5] {
        let mut rest = self.0;
        let [conditional, compressed, calls, returns] = BITS.map(|bits| {
            let count = rest & !(u64::MAX << bits);
            rest >>= bits;
            count
        });
        [conditional, compressed, calls, returns, rest]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::MAX_INSTRUCTIONS;
    use crate::paths::WINDOW;

    #[test]
    fn the_most_that_paths_hold_does_not_run_over() {
        let steps = MOST_STEPS as u32;
        let each = [WINDOW, WINDOW, steps, 1, steps * MAX_INSTRUCTIONS as u32];
        let mut sum = Tally::NONE;
        (0..Tally::MOST).for_each(|_| sum.add(Tally::of(each)));
        assert_eq!(sum.split(), each.map(|count| u64::from(count) * u64::from(Tally::MOST)));
    }
}
