//! What leads a path, and the key that it is kept by.

/// In place of branches, with the number of the block that a target is in.
const TARGET: u32 = 1 << 31;

/// What says where a path goes from its first block on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lead(pub u32);

impl Lead {
    /// Nothing: as far as blocks lead by themselves.
    pub const NONE: Lead = Lead(1);

    /// What is left of branches behind a path.
    #[inline(always)]
    pub fn behind(self, left: u8) -> Lead {
        Lead(self.0 & !(u32::MAX << left) | 1 << left)
    }

    /// `size` branches, the oldest in the highest bit.
    #[inline(always)]
    pub fn branches(bits: u64, size: u32) -> Lead {
        Lead((bits & ((1 << size) - 1)) as u32 | 1 << size)
    }

    /// The next branch that has its target told goes to the block of this number.
    #[inline(always)]
    pub fn target(block: u32) -> Lead {
        Lead(TARGET | block)
    }

    pub fn told_target(self) -> Option<u32> {
        (self.0 & TARGET != 0).then_some(self.0 & !TARGET)
    }

    pub fn count(self) -> u32 {
        if self.0 & TARGET != 0 {
            0
        } else {
            self.0.ilog2()
        }
    }

    /// The last `left` branches, the first of them in the highest bit.
    #[inline(always)]
    pub fn first(self, left: u32) -> u32 {
        self.0.checked_shl(32 - left).unwrap_or_default()
    }

    /// Whether the branch with `left - 1` others behind it is taken.
    pub fn taken(self, left: u32) -> bool {
        self.way(left) != 0
    }

    /// The same as an index: 1 when it is taken, else 0.
    #[inline(always)]
    pub fn way(self, left: u32) -> usize {
        (self.0 >> (left - 1)) as usize & 1
    }
}

/// A block's number, mixed: its part of a key's hash. Paths keep it for the block that they lead to, so that finding the next
/// one need not wait for a multiplication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mixed(u32);

impl Mixed {
    const BY: u32 = 0x9e37_79b1;
    /// The inverse of `BY` modulo 2^32.
    const BACK: u32 = 0x0e8b_2f51;

    #[inline(always)]
    pub const fn of(block: u32) -> Mixed {
        Mixed(block.wrapping_mul(Mixed::BY))
    }

    #[inline(always)]
    pub fn block(self) -> u32 {
        self.0.wrapping_mul(Mixed::BACK)
    }
}

/// What a path is kept by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(u64);

impl Key {
    /// No path's.
    pub const NONE: Key = Key(u64::MAX);

    #[inline(always)]
    pub fn new(block: Mixed, lead: Lead) -> Key {
        Key(u64::from(block.0) << 32 | u64::from(lead.0))
    }

    #[inline(always)]
    pub fn block(self) -> Mixed {
        Mixed((self.0 >> 32) as u32)
    }

    /// Differs in its upper bits.
    #[inline(always)]
    pub fn hash(self) -> u32 {
        self.block().0 ^ (self.0 as u32).wrapping_mul(0x6659_fd93)
    }
}
