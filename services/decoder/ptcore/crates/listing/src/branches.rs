//! How many instructions and branches of which kind ran in a stream, and what of it yielded no flow.

use crate::counts::{MAX_GAPS, QUESTION};
use crate::stop;
use pt_calls::Blocks;
use pt_flow::{Block, BlockKind, DisableKind, Loss, Sink};

/// A stretch that yielded no flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    pub loss: Loss,
    /// Why, in words.
    pub told: String,
}

/// Counts of the flow of a stream: the [`Sink`] of `permille pt stat`.
pub struct Branches<'w> {
    pub instructions: u64,
    pub blocks: u64,
    pub taken: u64,
    pub not_taken: u64,
    pub jumps: u64,
    pub indirect_jumps: u64,
    pub direct_calls: u64,
    pub indirect_calls: u64,
    pub returns: u64,
    pub far: u64,
    pub interrupts: u64,
    pub overflows: u64,
    /// At most [`MAX_GAPS`].
    pub gaps: Vec<Gap>,
    pub gap_count: u64,
    pub lost_bytes: u64,
    pub last_tsc: u64,
    pub ran: Blocks,
    /// The last that was told is a block that was left between two instructions.
    cut: bool,
    why: Box<dyn Fn(&Loss) -> String + 'w>,
    go_on: &'w (dyn Fn() -> bool + Sync),
}

impl<'w> Branches<'w> {
    /// `why` puts into words why a stretch was lost. `go_on` is asked from time to time: when it says no, the decode ends
    /// by [`stop`].
    pub fn new(why: impl Fn(&Loss) -> String + 'w, go_on: &'w (dyn Fn() -> bool + Sync)) -> Self {
        Branches {
            instructions: 0,
            blocks: 0,
            taken: 0,
            not_taken: 0,
            jumps: 0,
            indirect_jumps: 0,
            direct_calls: 0,
            indirect_calls: 0,
            returns: 0,
            far: 0,
            interrupts: 0,
            overflows: 0,
            gaps: Vec::new(),
            gap_count: 0,
            lost_bytes: 0,
            last_tsc: 0,
            ran: Blocks::default(),
            cut: false,
            why: Box::new(why),
            go_on,
        }
    }
}

impl Sink for Branches<'_> {
    const DIVIDED: bool = true;

    /// One block, of which both halves are told.
    fn psb(&mut self, _next: &Block<'_>, _tsc: u64) {
        self.blocks -= u64::from(std::mem::take(&mut self.cut));
    }

    #[inline]
    fn block(&mut self, block: &Block<'_>, tsc: u64) {
        self.blocks += 1;
        if self.blocks % QUESTION as u64 == 0 && !(self.go_on)() {
            stop();
        }
        self.instructions += u64::from(block.instructions);
        self.ran.count(block);
        self.last_tsc = tsc;
        self.cut = block.kind == BlockKind::Interrupted;
        match block.kind {
            BlockKind::CondTaken => self.taken += 1,
            BlockKind::CondNotTaken => self.not_taken += 1,
            BlockKind::Jump => self.jumps += 1,
            BlockKind::IndirectJump => self.indirect_jumps += 1,
            BlockKind::Call => self.direct_calls += 1,
            BlockKind::IndirectCall => self.indirect_calls += 1,
            BlockKind::Return => self.returns += 1,
            BlockKind::Far => self.far += 1,
            BlockKind::Linear | BlockKind::Interrupted => {}
        }
    }

    fn enabled(&mut self, _ip: u64, _resumed: bool, _tsc: u64) {}

    fn disabled(&mut self, _kind: DisableKind, _at: u64, _target: Option<u64>, _tsc: u64) {
        self.cut = false;
    }

    fn interrupt(&mut self, _from: u64, _to: u64, _tsc: u64) {
        self.cut = false;
        self.interrupts += 1;
    }

    fn loss(&mut self, loss: &Loss) {
        self.cut = false;
        self.gap_count += 1;
        self.lost_bytes += loss.size as u64;
        if self.gaps.len() < MAX_GAPS {
            self.gaps.push(Gap { loss: *loss, told: (self.why)(loss) });
        }
    }

    fn overflow(&mut self, _offset: usize, _from: Option<u64>, _tsc: u64) {
        self.cut = false;
        self.overflows += 1;
    }
}
