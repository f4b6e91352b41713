//! Symbols of code that has none.

use pt_image::{Place, Role, Symbols};
use std::ops::Range;

/// Code without symbols, or functions of 256 bytes each: jumps between them are tail calls, and some are stubs.
#[derive(Clone, Copy)]
pub struct Functions {
    pub divided: bool,
}

impl Symbols for Functions {
    fn place(&self, _epoch: u32, address: u64) -> Place {
        let start = if self.divided { address & !0xff } else { 0 };
        Place {
            space: 0,
            function: self.divided.then_some((address >> 8) as u32 & 0xffff),
            start,
            end: if self.divided { start + 0x100 } else { u64::MAX },
            bias: 0,
            entry: self.divided && address == start,
            role: match (self.divided, address >> 8 & 63) {
                (true, 1) => Role::SetJump,
                (true, 2) => Role::LongJump,
                (true, 4..=11) => Role::Stub,
                (true, 12) => Role::ReturnStub,
                (true, 13) => Role::Switch,
                _ => Role::Plain,
            },
        }
    }

    /// Half of the places are landing pads, each of them for half of the calls of its function.
    fn caught_at(&self, _epoch: u32, pad: u64) -> Option<Vec<Range<u64>>> {
        let stretch = |start: u64| start..start + 0x10;
        let first = pad & !0xff | pad & 0x10;
        (self.divided && pad >> 3 & 1 == 0).then(|| (first..=first + 0xe0).step_by(0x20).map(stretch).collect())
    }
}

/// The same, but nothing is said of any other address than the one that is asked for.
pub struct OneByOne(pub Functions);

impl Symbols for OneByOne {
    fn place(&self, epoch: u32, address: u64) -> Place {
        Place { end: address + 1, ..self.0.place(epoch, address) }
    }

    fn caught_at(&self, epoch: u32, pad: u64) -> Option<Vec<Range<u64>>> {
        self.0.caught_at(epoch, pad)
    }
}
