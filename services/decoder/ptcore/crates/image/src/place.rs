//! Which function an address is in.

use crate::Role;
use std::ops::{Deref, Range};

/// What is known about a code address in one epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The binary, run-time code or missing mapping, by the image's own number.
    pub space: u32,
    /// The function in the space; `None` where nothing says how the code is divided.
    pub function: Option<u32>,
    /// Where the function begins, as far as it stands around the address, or the code that nothing divides; in
    /// front of the address other code may stand there. A function is entered nowhere behind.
    pub start: u64,
    /// From the address up to here the same is known of every address.
    pub end: u64,
    /// Subtracted from an address it gives the address in the binary's own address space.
    pub bias: u64,
    /// The address is where the function is entered.
    pub entry: bool,
    pub role: Role,
}

/// Divides code into functions.
pub trait Symbols {
    fn place(&self, epoch: u32, address: u64) -> Place;

    /// Where calls return to out of which an exception goes on at `pad`. `None` where nothing says that it is a landing pad.
    fn caught_at(&self, _epoch: u32, _pad: u64) -> Option<Vec<Range<u64>>> {
        None
    }

    /// Whether a restartable sequence of instructions that the kernel has interrupted goes on at `address`: the signature of
    /// rseq(2) stands in front of it.
    fn restarts_at(&self, _epoch: u32, _address: u64) -> bool {
        false
    }
}

impl<S: Deref<Target: Symbols>> Symbols for S {
    fn place(&self, epoch: u32, address: u64) -> Place {
        (**self).place(epoch, address)
    }

    fn caught_at(&self, epoch: u32, pad: u64) -> Option<Vec<Range<u64>>> {
        (**self).caught_at(epoch, pad)
    }

    fn restarts_at(&self, epoch: u32, address: u64) -> bool {
        (**self).restarts_at(epoch, address)
    }
}
