//! What is known of a cached block.

use crate::functions::Entered;

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
}

impl Known {
    pub const NOTHING: Known = Known { function: u32::MAX, called: u32::MAX, entry: false, stub: false };
}

/// Lists by number of block grow by so many elements at a time.
const STEP: usize = 64;

/// The element of block `id`; where the list is shorter it grows, with `nothing` in its new elements.
#[inline(always)]
pub fn grow<T: Copy>(list: &mut Vec<T>, id: u32, nothing: T) -> &mut T {
    let index = id as usize;
    if list.len() <= index {
        list.resize((index + 1).next_multiple_of(STEP), nothing);
    }
    &mut list[index]
}

/// The function that a block is in, as it is entered.
pub fn of(known: Known) -> Entered {
    Entered { function: known.function, entry: known.entry }
}
