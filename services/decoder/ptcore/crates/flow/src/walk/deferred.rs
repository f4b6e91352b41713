//! Which branches in front of a target ran behind it.
//!
//! A TIP may come behind branches that follow it (SDM section "Deferred TIPs"), as many as the last TNT packet has. Where
//! the code in front of the target is not known, nothing says how many. So each number is tried with what comes next: the
//! true one fits the packets as far as code is known. When it alone does, it is known.

use super::Walk;
use crate::epochs_ahead::EpochsAhead;
use crate::events::Events;
use crate::part::Part;
use crate::view::{is_kernel, View};
use crate::{Block, BlockKind, CodeMemory, Config, DisableKind, Loss, Reason, Sink};

/// So many bytes are looked at first, and so many times more as long as several numbers fit, up to so many in all.
const FIRST: usize = 64;
const MORE: usize = 8;
const MOST: usize = 1 << 12;

/// What one trial costs besides what it reads, in bytes.
const TRIAL: usize = 16;

/// SYSCALL, SYSENTER and INT n (SDM volume 2).
const SYSTEM_CALLS: [&[u8]; 3] = [&[0x0f, 0x05], &[0x0f, 0x34], &[0xcd]];

/// Branches at hand, the newest in bit 0.
#[derive(Clone, Copy, Default)]
pub(super) struct Branches {
    pub bits: u64,
    pub count: u32,
}

impl Branches {
    pub fn of(events: &Events<'_>) -> Self {
        Branches { bits: events.bits, count: events.count }
    }

    /// The last `count` of them.
    pub fn last(self, count: u32) -> Self {
        Branches { bits: self.bits & !(u64::MAX << count), count }
    }
}

/// A target that was just read, behind code that is not known.
#[derive(Clone, Copy)]
pub(super) struct Reached {
    pub ip: u64,
    pub view: View,
    /// Those in front of it, of which the last ones may have run behind it.
    pub branches: Branches,
    /// Out of the kernel.
    pub from_kernel: bool,
}

/// What one number of branches leads to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trial {
    /// What comes next does not fit.
    Fails,
    /// It fits as far as it was looked at.
    Fits,
    /// It fits up to where nothing more is known of it. What ran, in short, and up to which packet, with how many of the branches
    /// that are left where it is known what follows.
    Ends { ran: u64, position: usize, left: u32 },
}

/// What runs.
#[derive(Default)]
struct Track {
    /// In short.
    ran: u64,
    /// The last far branch that went to a program.
    far: Option<u64>,
}

impl Track {
    fn take(&mut self, word: u64) {
        // The multiplier of FxHash (rustc-hash).
        self.ran = (self.ran.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
}

impl Sink for Track {
    const TIMED: bool = false;

    fn block(&mut self, block: &Block<'_>, _: u64) {
        self.take(block.start);
        self.take(block.target);
        self.take(u64::from(block.instructions));
        if block.kind == BlockKind::Far && block.target != 0 && !is_kernel(block.target) {
            self.far = Some(block.last);
        }
    }
    fn enabled(&mut self, _: u64, _: bool, _: u64) {}
    fn disabled(&mut self, _: DisableKind, _: u64, _: Option<u64>, _: u64) {}
    fn interrupt(&mut self, _: u64, to: u64, _: u64) {
        self.take(to);
    }
    fn loss(&mut self, _: &Loss) {}
    fn overflow(&mut self, _: usize, _: Option<u64>, _: u64) {}
}

impl<'d, M: CodeMemory, S: Sink> Walk<'_, 'd, M, S> {
    /// How many of the branches ran behind the target; where that makes no difference, the most that may have. `None` when it is not
    /// certain. `room`: how many bytes may be read for that, which is what is left of it then.
    #[cold]
    pub(super) fn deferred(&mut self, target: Reached, room: &mut usize) -> Option<u32> {
        let Reached { branches, .. } = target;
        if branches.count == 0 {
            return Some(0);
        }
        if self.events.busy || self.events.reader.in_block() {
            return None;
        }
        let ahead = &self.events.reader.data()[self.events.position()..];
        let mut trials: Vec<_> = (0..=branches.count).map(|count| (count, Trial::Fits)).collect();
        let mut bytes = FIRST;
        while bytes <= MOST {
            let ahead = &ahead[..ahead.len().min(bytes)];
            for (count, trial) in trials.iter_mut().filter(|(_, trial)| *trial == Trial::Fits) {
                let target = Reached { branches: branches.last(*count), ..target };
                *trial = self.trial(target, ahead, room);
            }
            self.sink.paths(self.code.paths.generation);
            trials.retain(|(_, trial)| *trial != Trial::Fails);
            if *room == 0 {
                return None;
            }
            let &(most, last) = trials.last()?;
            let is_same = |&(_, trial): &_| trial != Trial::Fits && trial == last;
            if trials.len() == 1 || trials.iter().all(is_same) {
                return Some(most);
            }
            bytes *= MORE;
        }
        None
    }

    /// What comes of these branches, of which the first is behind the target, and of the packets ahead.
    fn trial(&mut self, target: Reached, ahead: &'d [u8], room: &mut usize) -> Trial {
        let Reached { ip, view, branches, from_kernel } = target;
        let config = Config { stop_at_last_packet: true, ..self.config };
        let (mut none, part, mut track) = (std::iter::empty(), Part::default(), Track::default());
        let epochs = EpochsAhead::new(&mut none);
        let mut walk = Walk::new(self.memory, &mut *self.code, ahead, &config, epochs, &part, &mut track);
        walk.events.last_ip = self.events.last_ip;
        (walk.events.bits, walk.events.count) = (branches.bits, branches.count);
        walk.events.tnt_bits = branches.count.into();
        (walk.epoch, walk.enabled, walk.is_trial) = (self.epoch, true, true);
        walk.returns = self.returns.clone();
        walk.look_in(view);
        let ended = walk.go(ip).and_then(|()| walk.run());
        let (position, left, is_cut) = (walk.events.position(), walk.events.count, !walk.pauses);
        *room = room.saturating_sub(TRIAL + position);
        match ended.map_err(|fault| fault.reason) {
            Ok(()) | Err(Reason::TruncatedPacket) if is_cut => Trial::Fits,
            Err(Reason::EmptyReturnStack) if !self.bypassed => Trial::Fails,
            Err(Reason::UnexpectedPacket(_) | Reason::BadReturn | Reason::EndlessLoop | Reason::BadStatus) => {
                Trial::Fails
            }
            // Linux has its kernel in its own half of all programs.
            Ok(()) if from_kernel && track.far.is_some_and(|from| self.calls_system(from)) => Trial::Fails,
            Ok(()) => Trial::Ends { ran: track.ran, position, left },
            Err(_) => Trial::Ends { ran: track.ran, position, left: 0 },
        }
    }

    fn calls_system(&self, address: u64) -> bool {
        let code = self.memory.read(self.view.epoch(), address);
        code.is_some_and(|code| SYSTEM_CALLS.iter().any(|call| code.bytes.starts_with(call)))
    }
}
