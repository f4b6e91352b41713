//! Instructions of which a copy runs elsewhere.
//!
//! Linux puts a breakpoint in place of an instruction with a uprobe, and runs a copy of it, one step, in a slot of a page that nobody can
//! read (kernel/events/uprobes.c). So a stop in front of the instruction is followed by a TIP.PGE with the slot's address and a stop
//! behind the copy, or in front of it where it takes a fault. It is told as run where it stands.

use super::Walk;
use crate::view::is_kernel;
use crate::{CodeMemory, Reason, Sink};

/// UPROBE_XOL_SLOT_BYTES (Linux, arch/x86/include/asm/uprobes.h).
const SLOT: u64 = 128;

impl<M: CodeMemory, S: Sink> Walk<'_, '_, M, S> {
    /// Where tracing goes on that is enabled at `ip`: there, or at the instruction of which a copy is there.
    #[inline(always)]
    pub(super) fn stands_at(&mut self, ip: u64) -> u64 {
        if ip % SLOT == 0 {
            self.copied_from(ip).unwrap_or(ip)
        } else {
            ip
        }
    }

    #[cold]
    fn copied_from(&mut self, slot: u64) -> Option<u64> {
        let at = self.stopped_at.filter(|&at| at != slot && !is_kernel(slot))?;
        if self.code.find(self.memory, self.view, slot) != Err(Reason::NoCode) {
            return None;
        }
        let size = self.plain_instruction(at)?;
        let end = self.events.fup_ahead()?;
        (end == slot || end == slot.wrapping_add(size)).then(|| {
            self.events.copied = Some(end.wrapping_sub(slot).wrapping_add(at));
            at
        })
    }

    /// The bytes of the instruction there, unless it is a branch.
    fn plain_instruction(&mut self, address: u64) -> Option<u64> {
        let number = self.code.find(self.memory, self.view, address).ok()?;
        let block = self.code.block(number);
        let first = self.code.lengths(block).first()?;
        (block.instructions > 1).then_some(u64::from(*first))
    }
}
