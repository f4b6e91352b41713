//! System calls: they disable tracing, and what is traced next is where it is enabled again.

use super::{ip_of, Sums, Taken, Walk};
use crate::code_block::{CodeBlock, Exit, Mark, Way, SCRATCH};
use crate::lead::Lead;
use crate::path::told;
use crate::{BlockKind, CodeMemory, DisableKind, Sink};

/// A TIP.PGD without address.
const DISABLED: u8 = 0x01;
/// The low bits of a TIP.PGE.
const ENABLED: u8 = 0x11;
/// Direct branches that may lead to a system call.
const MOST_STEPS: usize = 4;

impl<M: CodeMemory, S: Sink> Walk<'_, '_, M, S> {
    /// Takes up a TIP.PGD and the TIP.PGE that nothing but PADs stand in front of, where they are those of a system call. False when
    /// that is left to others.
    #[cold]
    #[inline(never)]
    pub(super) fn pass_system_call(&mut self, taken: &mut Taken, sums: &mut Sums) -> bool {
        let data = self.hot_data();
        let Some(&[DISABLED, ref behind @ ..]) = data.get(taken.at..) else { return false };
        let pads = behind.iter().take_while(|&&byte| byte == 0).count();
        let ahead = &behind[pads..];
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
        self.sink.enabled(ip, ip == end, now);
        self.hare.rest();
        self.at = next;
        let enabled_at = taken.at + 1 + pads;
        (self.stopped_at, self.events.offset, self.events.last_offset) = (None, enabled_at, enabled_at);
        (taken.at, taken.used_at, taken.last_ip) = (enabled_at + size, enabled_at, ip);
        taken.packets += 2 + pads as u64;
        true
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
