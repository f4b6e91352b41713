//! Programs that go into a kernel of which no code is known.

use super::Walk;
use crate::event::Fault;
use crate::view::is_kernel;
use crate::{CodeMemory, DisableKind, Reason, Sink};

impl<M: CodeMemory, S: Sink> Walk<'_, '_, M, S> {
    /// Whether a program goes into such a kernel. An address that is not canonical (SDM volume 1, section "Canonical Addressing", with 57
    /// bits) is damage.
    #[cold]
    #[inline(never)]
    pub(super) fn is_hidden(&mut self, from: u64, to: u64) -> bool {
        to >> 56 == 0xff
            && !is_kernel(from)
            && !self.config.resume_at_address
            && self.code.find(self.memory, self.view, to) == Err(Reason::NoCode)
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
