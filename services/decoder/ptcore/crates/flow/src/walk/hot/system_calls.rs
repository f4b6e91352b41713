//! System calls: they disable tracing, and what is traced next is where it is enabled again.

use super::{ip_of, Sums, Taken, Walk};
use crate::code_block::{CodeBlock, Exit, Mark, Way, SCRATCH};
use crate::lead::Lead;
use crate::path::told;
use crate::walk::gap::times_ahead;
use crate::{BlockKind, CodeMemory, DisableKind, Sink};
use pt_packet::{Packet, Reader};

/// A TIP.PGD without address.
const DISABLED: u8 = 0x01;
/// The first byte of a MODE.
const MODE: u8 = 0x99;
/// The low bits of a TIP.PGE.
const ENABLED: u8 = 0x11;
/// Direct branches that may lead to a system call.
const MOST_STEPS: usize = 4;

impl<M: CodeMemory, S: Sink> Walk<'_, '_, M, S> {
    /// Takes up a TIP.PGD and the TIP.PGE behind it, where they are those of a system call, and times and the mode that is known
    /// are all that stands between. False when that is left to others.
    #[cold]
    #[inline(never)]
    pub(super) fn pass_system_call(&mut self, taken: &mut Taken, sums: &mut Sums) -> bool {
        let data = self.hot_data();
        if self.is_trial || data.get(taken.at) != Some(&DISABLED) {
            return false;
        }
        let (mut pace, mut enabled_at) = (taken.pace, taken.at + 1);
        let mut packets = 2 + times_ahead::<S>(data, &mut enabled_at, &mut pace);
        if data.get(enabled_at) == Some(&MODE) {
            if !self.is_known_mode(&data[enabled_at..]) {
                return false;
            }
            packets += 1;
            enabled_at += 2;
        }
        let ahead = &data[enabled_at..];
        if ahead.first().is_none_or(|first| first & 0x1f != ENABLED) {
            return false;
        }
        let Some((ip, size)) = ip_of(ahead, taken.last_ip) else { return false };
        let (Some(next), Some(call)) = (self.code.find_again(self.view, ip), self.system_call_ahead()) else {
            return false;
        };
        let now = taken.pace.now;
        if call != self.at {
            let _ = self.run_path(Lead::NONE, sums, now);
        }
        // As far as it went it is where it would have been led otherwise.
        if call != self.at {
            return false;
        }
        let block = self.code.block(call);
        let CodeBlock { last, end, .. } = *block;
        self.statistics.instructions += u64::from(block.instructions);
        self.sink.block(&told(self.code, block, BlockKind::Far, 0, self.epoch), now);
        self.sink.disabled(DisableKind::Synchronous, last, None, now);
        self.sink.enabled(ip, ip == end, pace.now);
        self.hare.rest();
        self.at = next;
        (self.stopped_at, self.events.offset, self.events.last_offset) = (None, enabled_at, enabled_at);
        (taken.at, taken.used_at, taken.last_ip) = (enabled_at + size, enabled_at, ip);
        taken.packets += packets;
        taken.pace = pace;
        true
    }

    /// Whether the MODE packet ahead tells nothing new.
    fn is_known_mode(&self, ahead: &[u8]) -> bool {
        match Reader::new(ahead).read() {
            Ok(Some(Packet::ModeExec { mode, interrupt_flag })) => {
                (self.mode, self.interrupt_flag) == (Some(mode), Some(interrupt_flag))
            }
            _ => false,
        }
    }

    /// The block that ends with a far transfer, where none but direct branches lead there, and no other instruction can be what
    /// disables tracing.
    fn system_call_ahead(&self) -> Option<u32> {
        let mut at = self.at;
        if self.direct_branches_disable() {
            return None;
        }
        for _ in 0..MOST_STEPS {
            let block = self.code.block(at);
            if at == SCRATCH || block.has(Mark::Cr3) {
                return None;
            }
            at = match block.exit {
                Exit::Far => return Some(at),
                Exit::Linear => block.linked(Way::Next, self.view)?,
                Exit::Jump | Exit::Call => block.linked(Way::Target, self.view)?,
                _ => return None,
            };
        }
        None
    }
}
