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
    blocks: u64,
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
    /// A PSB cut it: what runs next is its other half, and no block of its own.
    halved: bool,
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
            halved: false,
            why: Box::new(why),
            go_on,
        }
    }
}

impl Branches<'_> {
    /// Blocks. The other half of one that the last PSB cut is counted by who tells it.
    pub fn blocks(&self) -> u64 {
        self.blocks - u64::from(self.halved)
    }
}

impl Sink for Branches<'_> {
    const DIVIDED: bool = true;

    fn psb(&mut self, _next: &Block<'_>, _tsc: u64) {
        self.halved |= std::mem::take(&mut self.cut);
    }

    #[inline]
    fn block(&mut self, block: &Block<'_>, tsc: u64) {
        self.blocks += u64::from(!std::mem::take(&mut self.halved));
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
            BlockKind::Far | BlockKind::FarCall => self.far += 1,
            BlockKind::Linear | BlockKind::Interrupted => {}
        }
    }

    fn enabled(&mut self, _ip: u64, _resumed: bool, _tsc: u64) {}

    fn disabled(&mut self, _kind: DisableKind, _at: u64, _target: Option<u64>, _tsc: u64) {
        (self.cut, self.halved) = (false, false);
    }

    fn interrupt(&mut self, _from: u64, _to: u64, _tsc: u64) {
        (self.cut, self.halved) = (false, false);
        self.interrupts += 1;
    }

    fn loss(&mut self, loss: &Loss) {
        (self.cut, self.halved) = (false, false);
        self.gap_count += 1;
        self.lost_bytes += loss.size as u64;
        if self.gaps.len() < MAX_GAPS {
            self.gaps.push(Gap { loss: *loss, told: (self.why)(loss) });
        }
    }

    fn overflow(&mut self, _offset: usize, _from: Option<u64>, _tsc: u64) {
        (self.cut, self.halved) = (false, false);
        self.overflows += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pt_flow::{Config, Flow};
    use pt_image::Image;
    use pt_packet::writer::write;
    use pt_packet::{Compression, Execution, Ip, Packet};

    /// Blocks and instructions of four NOPs and a return, by PSBs at these places up to where tracing stops.
    fn counted(psbs: &[u64], stop: u64) -> (u64, u64) {
        let mut image = Image::new();
        image.code(0, 0x1000, vec![0x90, 0x90, 0x90, 0x90, 0xc3]).expect("code");
        let at = |offset| Ip { compression: Compression::Full, payload: 0x1000 + offset };
        let mode = Packet::ModeExec { mode: Execution::Bits64, interrupt_flag: false };
        let mut data = Vec::new();
        for packet in psbs.iter().flat_map(|&psb| [Packet::Psb, mode, Packet::Fup(at(psb)), Packet::Psbend]) {
            write(&mut data, packet);
        }
        for packet in [Packet::Fup(at(stop)), Packet::TipPgd(Ip::SUPPRESSED)] {
            write(&mut data, packet);
        }
        let mut branches = Branches::new(|_| String::new(), &|| true);
        Flow::new(&image).decode(&data, &Config::default(), &[], &mut branches);
        assert_eq!(branches.gap_count, 0);
        (branches.blocks(), branches.instructions)
    }

    #[test]
    fn a_block_is_one_wherever_psbs_cut_it_and_whatever_comes_behind() {
        assert_eq!(counted(&[0], 4), (1, 4));
        assert_eq!(counted(&[0, 2], 4), (1, 4));
        assert_eq!(counted(&[0, 1, 2, 2], 3), (1, 3));
        // Nothing runs behind the last one.
        assert_eq!(counted(&[0, 4], 4), (1, 4));
        assert_eq!(counted(&[0, 2, 4], 4), (1, 4));
        assert_eq!(counted(&[0, 0], 0), (0, 0));
    }
}
