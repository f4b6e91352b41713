//! Tracing that ends in what the kernel's scheduler calls, and begins again in something else that it calls.

use super::{Call, Nested, FUNCTIONS, KERNEL, SIZE};
use crate::support::kernel::ip;
use pt_calls::{BEGIN_TRUNCATED, END_TRUNCATED};
use pt_flow::is_kernel;
use pt_packet::{Ip, Packet};

const SCHEDULER: u64 = KERNEL + SIZE * (FUNCTIONS as u64 - 3);
const OUT: u64 = SCHEDULER + SIZE;
const IN: u64 = OUT + SIZE;

/// The kernel's calls that may be open still, as far as they were come back to.
pub struct Since {
    /// The outermost one of them.
    entered: usize,
    /// How many calls were open at least.
    least: usize,
}

/// What the scheduler and those that it calls consist of.
pub fn put(code: &mut [u8]) {
    let mut put = |at: u64, some: &[u8]| {
        let at = (at - KERNEL) as usize;
        code[at..][..some.len()].copy_from_slice(some);
    };
    for at in [SCHEDULER, OUT, IN] {
        put(at, &[0x90; SIZE as usize]);
    }
    let call = |at: u64, to: u64| [&[0xe8][..], &(to.wrapping_sub(at + 5) as u32).to_le_bytes()].concat();
    put(SCHEDULER, &call(SCHEDULER, OUT));
    put(SCHEDULER + 6, &call(SCHEDULER + 6, IN));
    put(SCHEDULER + 12, &[0xc3]);
    // wrmsr
    put(OUT + 1, &[0x0f, 0x30, 0xc3]);
    put(IN + 2, &[0x0f, 0x30, 0x90, 0xc3]);
}

impl Nested {
    /// Another thread runs; this one is to go on in something else that the scheduler calls.
    pub(super) fn stop_in_scheduler(&mut self) {
        self.flush();
        self.packet(Packet::Fup(ip(self.ip)));
        self.packet(Packet::TipPgd(Ip::SUPPRESSED));
        let user = |frame: &super::Frame| !is_kernel(frame.resumes);
        let entered = self.frames.iter().rposition(user).expect("a call that entered the kernel");
        self.cut(entered);
        let last = self.frames.len() - 1;
        self.frames[last].resumes = SCHEDULER + 11;
        let call = self.frames[last].call;
        self.calls[call].function = IN;
        self.waits = Some(IN + 4);
    }

    /// The kernel's calls end here, and those that are come back to begin here.
    fn cut(&mut self, entered: usize) {
        let seen = match &self.since {
            Some(since) if since.entered == entered => (since.least - 1).max(entered),
            _ => entered,
        };
        for index in entered..self.frames.len() {
            let call = self.frames[index].call;
            if index < seen {
                self.gone.push(call);
            } else {
                self.calls[call].ended = self.ran;
                self.calls[call].flags |= END_TRUNCATED;
            }
            let parent = (index > entered).then(|| self.frames[index - 1].call);
            let inside = entered.checked_sub(1).map(|outside| self.frames[outside].call);
            let function = self.calls[call].function;
            self.frames[index].call = self.calls.len();
            self.calls.push(Call { function, parent, inside, began: self.ran, ended: 0, flags: BEGIN_TRUNCATED });
        }
        self.since = Some(Since { entered, least: self.frames.len() });
    }

    /// Whether nothing tells that the innermost call made the next one.
    pub(super) fn is_cut(&self) -> bool {
        self.since.as_ref().is_some_and(|since| since.entered == self.frames.len())
    }

    /// A call has returned to the innermost one.
    pub(super) fn is_back(&mut self) {
        let open = self.frames.len();
        if let Some(since) = self.since.as_mut().filter(|since| open > since.entered) {
            since.least = since.least.min(open);
        } else {
            self.since = None;
        }
    }

    /// Leaves out the calls that were never come back to.
    pub(super) fn forget_gone(&mut self) {
        let gone = std::mem::take(&mut self.gone);
        let place =
            |call: usize| (!gone.contains(&call)).then(|| call - gone.iter().filter(|&&one| one < call).count());
        for call in 0..self.calls.len() {
            if let Some(parent) = self.calls[call].parent.filter(|parent| gone.contains(parent)) {
                self.calls[call].inside = self.calls[parent].inside;
            }
        }
        let mut number = 0;
        self.calls.retain(|_| {
            number += 1;
            !gone.contains(&(number - 1))
        });
        for call in &mut self.calls {
            call.parent = call.parent.and_then(place);
            call.inside = call.inside.and_then(place);
        }
    }
}
