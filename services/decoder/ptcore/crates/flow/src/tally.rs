//! How many of what paths hold.

/// Blocks of one path: bounds runs of direct jumps.
pub const MOST_STEPS: usize = 64;

/// How many of what a path holds, in 16 bits each so that paths add up in one addition.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally(u64);

impl Tally {
    pub const NONE: Tally = Tally(0);

    /// Sums may hold this many paths.
    pub const MOST: u32 = u16::MAX as u32 / MOST_STEPS as u32;

    pub fn of(conditional: u16, compressed: u16, calls: u16, returns: u16) -> Tally {
        let [conditional, compressed, calls, returns] = [conditional, compressed, calls, returns].map(u64::from);
        Tally(conditional | compressed << 16 | calls << 32 | returns << 48)
    }

    #[inline(always)]
    pub fn add(&mut self, other: Tally) {
        self.0 += other.0;
    }

    /// Conditional branches, compressed returns, calls, other returns.
    pub fn split(self) -> [u64; 4] {
        [0, 16, 32, 48].map(|at| self.0 >> at & 0xffff)
    }
}
