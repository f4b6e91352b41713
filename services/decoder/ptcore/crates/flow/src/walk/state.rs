//! What code is looked at: the epoch of the image and the mode of execution.

use super::Walk;
use crate::view::View;
use crate::{CodeMemory, Notice, NoticeKind, Sink};
use pt_packet::Execution;

impl<M: CodeMemory, S: Sink> Walk<'_, '_, M, S> {
    /// Takes the mode that comes with the event; a change is told with what is held.
    #[cold]
    pub(super) fn take_mode(&mut self, ip: Option<u64>, status: bool) {
        let Some((mode, flag)) = self.events.mode.take() else { return };
        if self.mode.replace(mode) != Some(mode) {
            self.look_in(self.view.of_mode(mode));
            self.held.push(Notice { kind: NoticeKind::ExecutionMode(mode), ip, status });
        }
        if self.interrupt_flag.replace(flag) != Some(flag) {
            self.held.push(Notice { kind: NoticeKind::InterruptFlag(flag), ip, status });
        }
    }

    /// Code is looked at so from now on, and its returns pop so much.
    #[cold]
    pub(super) fn look_in(&mut self, view: View) {
        self.view = view;
        if view.execution() != Execution::Bits64 {
            let code = &*self.code;
            self.returns.narrow(|call| code.block(call).end);
        }
    }

    /// Takes the code image as of the packet at `offset`.
    #[inline(always)]
    pub(super) fn enter_epoch(&mut self, offset: usize) {
        while let Some(epoch) = self.epochs.next_up_to(offset) {
            self.begin_epoch(epoch);
        }
    }

    /// The same up to where the next one is another thread's: then it is true.
    #[cold]
    pub(super) fn enter_epoch_of_thread(&mut self, offset: usize) -> bool {
        while let Some((_, epoch)) = self.epochs.first().filter(|&(from, _)| from <= offset) {
            if self.memory.thread(epoch) != self.memory.thread(self.epoch) {
                return true;
            }
            self.epochs.next_up_to(offset);
            self.begin_epoch(epoch);
        }
        false
    }

    #[cold]
    fn begin_epoch(&mut self, epoch: u32) {
        self.pauses |= self.in_turns && epoch != self.epoch;
        self.epoch = epoch;
        self.view = self.view.of_epoch(self.memory.same_code(epoch));
        self.sink.epoch(epoch);
    }
}
