//! What is known of a cached block.

use crate::functions::Entered;
use pt_flow::Block;

/// There is room for so many from the outset: most short streams run through no more.
pub const FEWEST_BLOCKS: usize = 3 << 10;

/// What was found out about a cached block.
#[derive(Clone, Copy)]
pub struct Known {
    /// The function that it is in; `u32::MAX` when that is to be asked anew.
    pub function: u32,
    /// The function that a call of it enters.
    pub called: u32,
    /// Whether the block begins where the function is entered.
    pub entry: bool,
    /// It is code that only leads to another function, and no call of its own.
    pub stub: bool,
    /// So many bytes of it are surely in the function, if it has so many.
    pub within: u16,
}

impl Known {
    pub const NOTHING: Known =
        Known { function: u32::MAX, called: u32::MAX, entry: false, stub: false, within: u16::MAX };

    /// Whether the block may go on into the next function without a branch.
    #[inline(always)]
    pub fn may_cross(&self, block: &Block<'_>) -> bool {
        block.last.wrapping_sub(block.start) >= self.within.into()
    }
}

/// The function that a block is in, as it is entered.
pub fn of(known: Known) -> Entered {
    Entered { function: known.function, entry: known.entry }
}
