//! A program's calls while the kernel goes on elsewhere than where tracing of it ended.
//!
//! perf records a program with its kernel so: it stops in what the scheduler calls before another thread runs, and begins again in
//! what it calls behind that. What was open of the kernel is over or goes on, and no packet tells which. The program's calls
//! go on where the kernel goes back to them.

use super::frame::{Frame, Interruption};
use super::landings::Local;
use super::remembered::Landings;
use super::Stack;
use crate::output::Output;
use crate::records::END_TRUNCATED;
use pt_flow::is_kernel;

/// The calls of a program of which the kernel runs.
pub struct Suspended {
    pub(super) frames: Vec<Frame>,
    interruptions: Vec<Interruption>,
    landings: Landings,
    locals: Vec<Local>,
    /// Where the kernel was to go back to.
    resumes: u64,
    /// Instructions that had run.
    ran: u64,
}

impl<O: Output> Stack<O> {
    /// The kernel goes on elsewhere: its calls end, and a stretch begins inside those of its program.
    pub fn suspend(&mut self) {
        let entered = self.entered_kernel().filter(|&(index, _)| index > 0 && self.suspended.is_none());
        let kept = entered.map_or(0, |(index, _)| index);
        while self.frames.len() > kept {
            self.pop(END_TRUNCATED);
        }
        if let Some((_, resumes)) = entered {
            self.suspended = Some(Box::new(Suspended {
                frames: std::mem::take(&mut self.frames),
                interruptions: std::mem::take(&mut self.interruptions),
                landings: std::mem::take(&mut self.landings),
                locals: std::mem::take(&mut self.locals),
                resumes,
                ran: self.clock.ran,
            }));
            self.alone_from = self.clock.ran;
        }
        self.begin();
    }

    /// The kernel goes back to its program, when none of its own calls are open any more. Where it was to go back to; `None` when
    /// no program is suspended.
    pub fn go_on_suspended(&mut self) -> Option<u64> {
        let Suspended { frames, interruptions, landings, locals, resumes, ran } = *self.suspended.take()?;
        (self.frames, self.interruptions, self.landings, self.locals) = (frames, interruptions, landings, locals);
        if let Some(frame) = self.frames.last_mut() {
            frame.below += self.clock.ran - ran;
        }
        self.roots.clear();
        self.roots_total = 0;
        self.is_resumed = true;
        Some(resumes)
    }

    /// The program goes on, and nothing tells how the kernel went back to it.
    pub fn leave_suspended(&mut self) {
        if self.suspended.is_some() {
            self.end_those_open();
            self.go_on_suspended();
        }
    }

    /// The innermost call that entered the kernel, and where that is to go back to.
    pub(super) fn entered_kernel(&self) -> Option<(usize, u64)> {
        let mut interruptions = self.interruptions.iter().rev();
        self.frames.iter().enumerate().rev().find_map(|(index, frame)| {
            let resumes = if frame.is_asynchronous() { interruptions.next()?.resumes } else { frame.returns_to };
            (!is_kernel(resumes)).then_some((index, resumes))
        })
    }

    /// The calls that are suspended, for their rows.
    pub(super) fn suspended_frames(&mut self) -> &mut [Frame] {
        self.suspended.as_mut().map_or(&mut [], |suspended| &mut suspended.frames)
    }
}
