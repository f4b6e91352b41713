//! Loops that use up no packet.

/// Brent's cycle detection over blocks that were left without using up any packet.
#[derive(Clone, Copy, Default)]
pub struct Hare {
    tortoise: u64,
    steps: u32,
    power: u32,
}

impl Hare {
    /// A packet was used up: what follows is no cycle with what was before.
    #[inline(always)]
    pub fn rest(&mut self) {
        self.power = 0;
    }

    /// Whether the block at `at` closes a cycle.
    #[inline(always)]
    pub fn steps_on(&mut self, at: u64) -> bool {
        if self.power == 0 {
            *self = Hare { tortoise: at, steps: 0, power: 1 };
            return false;
        }
        if at == self.tortoise {
            return true;
        }
        self.steps += 1;
        if self.steps == self.power {
            *self = Hare { tortoise: at, steps: 0, power: self.power.saturating_mul(2) };
        }
        false
    }
}
