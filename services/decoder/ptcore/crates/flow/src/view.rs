//! In which epoch and mode code is looked at.

use pt_packet::Execution;

/// The epoch that stands for all with the same code ([`crate::CodeMemory::same_code`]), in 30 bits, and the code size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View(u32);

impl View {
    /// None that is ever seen.
    pub const NONE: View = View(u32::MAX);

    pub fn new(epoch: u32, mode: Execution) -> Self {
        View(epoch << 2 | mode as u32)
    }

    /// The same code size in another epoch.
    pub fn of_epoch(self, epoch: u32) -> Self {
        View(epoch << 2 | self.mode())
    }

    /// The other code size in the same epoch.
    pub fn of_mode(self, mode: Execution) -> Self {
        View::new(self.epoch(), mode)
    }

    pub fn execution(self) -> Execution {
        match self.mode() {
            0 => Execution::Bits16,
            1 => Execution::Bits32,
            _ => Execution::Bits64,
        }
    }

    pub fn mode(self) -> u32 {
        self.0 & 3
    }

    pub fn bitness(self) -> u32 {
        16 << self.mode()
    }

    /// What a return pops of the address behind its call: outside of 64-bit mode the lower half (SDM section "Indirect Transfer
    /// Compression for Returns"). Of what one with 16 bits pops no packet tells in which segment that is.
    pub fn popped(self, address: u64) -> u64 {
        if self.execution() == Execution::Bits64 {
            address
        } else {
            address & u64::from(u32::MAX)
        }
    }

    pub fn epoch(self) -> u32 {
        self.0 >> 2
    }
}

/// Whether the address is in the half of the kernel.
pub fn is_kernel(address: u64) -> bool {
    address >> 63 != 0
}
