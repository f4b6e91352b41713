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

    /// Whether the branch with `left - 1` others behind it is taken.
    pub fn taken(self, left: u32) -> bool {
        self.0 >> (left - 1) & 1 != 0
    }
}

#[inline(always)]
pub fn key(block: u32, lead: Lead) -> u64 {
    u64::from(block) << 32 | u64::from(lead.0)
}

/// The block's part of a key's hash: kept with the paths that lead to it, so that finding the next one need not wait for
/// a multiplication.
#[inline(always)]
pub fn mixed(block: u32) -> u64 {
    u64::from(block).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[inline(always)]
pub fn hash(mixed: u64, lead: Lead) -> u64 {
    mixed ^ u64::from(lead.0).wrapping_mul(0xd6e8_feb8_6659_fd93)
}
