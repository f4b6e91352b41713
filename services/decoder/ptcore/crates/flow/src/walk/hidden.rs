//! Programs that go into a kernel of which no code is known.

use super::Walk;
use crate::event::Fault;
use crate::view::is_kernel;
use crate::{CodeMemory, DisableKind, Reason, Sink};

impl<M: CodeMemory, S: Sink> Walk<'_, '_, M, S> {
    /// Whether a program goes into such a kernel.
    #[cold]
    #[inline(never)]
    pub(super) fn enters_hidden(&mut self, from: u64, to: u64) -> bool {
        !is_kernel(from) && self.is_hidden(to)
    }

    /// Whether the address is in such a kernel. One that is not canonical (SDM volume 1, section "Canonical Addressing", with 57 bits)
    /// is damage.
    pub(super) fn is_hidden(&mut self, address: u64) -> bool {
        address >> 56 == 0xff
            && !self.config.resume_at_address
            && self.code.find(self.memory, self.view, address) == Err(Reason::NoCode)
    }

    /// To the sink it is as if the kernel was not traced.
    #[cold]
    #[inline(never)]
    pub(super) fn leave_for_hidden(&mut self, kind: DisableKind, at: u64, target: u64, stopped_at: u64) -> Fault {
        (self.pending, self.enabled) = (None, false);
        self.stopped_at = Some(stopped_at);
        self.hare.rest();
        self.take_mode(None, false);
        self.tell_held();
        self.sink.disabled(kind, at, Some(target), self.events.time.now());
        self.ip = target;
        self.fault(Reason::NoKernelCode)
    }
}
