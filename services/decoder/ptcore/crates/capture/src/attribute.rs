//! Where in a stream a thread takes over from another, or an address space changes.
//!
//! Times of the operating system meet the stream only at its clock packets (TSC, MTC). Between two of them packets say
//! more: when only user code is traced, a switch happens while tracing is off (TIP.PGD to TIP.PGE), and core cycles (CYC)
//! say about when that was; when the kernel is traced too, a switch to another address space writes CR3 (PIP). SDM,
//! sections "Packet Enable (PacketEn)", "Cycle Count (CYC) Packet" and "Paging Information (PIP) Packet".

use crate::gaps::{Gap, Scan, Seen};
use pt_flow::Config;
use std::collections::HashMap;

/// From some moment between two times on another view holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The old one was still there, TSC ticks.
    pub from: u64,
    /// The new one is there.
    pub to: u64,
    pub view: u32,
    /// Whose address space holds from then on; 0 when that is no matter.
    pub pid: u32,
}

/// Where turns happen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placed {
    /// From which offset on which view holds.
    pub epochs: Vec<(usize, u32)>,
    /// Turns for which several places were as good.
    pub ambiguous: usize,
    /// Turns between two clock packets without a place that tells anything.
    pub coarse: usize,
    /// The stream has no clock packet: nothing tells where its turns are.
    pub timeless: bool,
}

/// Bit 12 of CR3 tells the user's from the kernel's page tables of one process (page table isolation), the bits below
/// are no address.
const CR3_PROCESS: u64 = !0x1fff;

#[derive(Clone, Copy)]
struct Pip {
    offset: usize,
    process: u64,
    /// The address space before was another.
    changes: bool,
}

struct Attribution<'t> {
    turns: &'t [Turn],
    placed: Placed,
    /// Those that may be where the first turn is.
    gaps: Vec<Gap>,
    pips: Vec<Pip>,
    /// How many of the gaps were over before the last clock packet.
    over: usize,
    /// Learned where there is no doubt.
    processes: HashMap<u64, u32>,
    process: u64,
    running: u32,
    /// The last clock packet: time and offset.
    tick: (u64, usize),
    /// The first clock packet at or behind the `from` of the first turn.
    begun: Option<usize>,
    at_least: usize,
}

/// Finds the places of turns, which are given by time. `first` holds from the beginning.
pub fn place(data: &[u8], config: &Config, first: u32, turns: &[Turn]) -> Placed {
    let mut placing = Placing::new(data, &[], config, first, turns);
    while placing.step() {}
    let mut placed = placing.attribution.placed;
    placed.epochs.dedup_by_key(|&mut (_, view)| view);
    placed
}

/// The same as they are asked for: from which offset on which view holds, and now and then the view that still holds, so that
/// who goes along a stream need not wait for the next place.
pub struct Placing<'d> {
    scan: Scan<'d>,
    attribution: Attribution<'d>,
    over: bool,
    /// Of the places that were found.
    given: usize,
    /// What was given last.
    last: (usize, u32),
}

/// What is read ahead of whoever asks, at least.
pub const AHEAD: usize = 1 << 20;

impl<'d> Placing<'d> {
    /// `missing`: offsets in front of which packets are missing, in order.
    pub fn new(data: &'d [u8], missing: &'d [usize], config: &Config, first: u32, turns: &'d [Turn]) -> Self {
        let attribution = Attribution {
            turns,
            placed: Placed { epochs: vec![(0, first)], timeless: true, ..Placed::default() },
            gaps: Vec::new(),
            pips: Vec::new(),
            over: 0,
            processes: HashMap::new(),
            process: 0,
            running: 0,
            tick: (0, 0),
            begun: None,
            at_least: 0,
        };
        let scan = Scan::new(data, missing, config);
        Placing { scan, attribution, over: turns.is_empty(), given: 0, last: (0, first) }
    }

    /// What was found so far.
    pub fn placed(&self) -> &Placed {
        &self.attribution.placed
    }

    /// Up to where the stream was read.
    pub fn scan_offset(&self) -> usize {
        self.scan.offset()
    }

    #[cfg(test)]
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Reads on; false when all turns have their places.
    fn step(&mut self) -> bool {
        let attribution = &mut self.attribution;
        let seen = if self.over { None } else { self.scan.next() };
        self.over = seen.is_none();
        match seen {
            Some(Seen::Gap(gap)) => attribution.gap(gap),
            Some(Seen::Pip { cr3, status: true, .. }) => attribution.process = cr3 & CR3_PROCESS,
            Some(Seen::Pip { offset, cr3, .. }) => attribution.pip(offset, cr3 & CR3_PROCESS),
            Some(Seen::Tick { offset, tsc }) => {
                attribution.placed.timeless = false;
                attribution.tick(offset, tsc, &self.scan);
            }
            None => attribution.end(self.scan.open_gap()),
        }
        self.over |= attribution.turns.is_empty();
        !self.over
    }

    /// In front of this offset no place is found any more.
    fn settled(&self) -> usize {
        let Attribution { placed, gaps, pips, begun, at_least, .. } = &self.attribution;
        match (self.over, placed.timeless) {
            (true, _) => return usize::MAX,
            (false, true) => return 0,
            (false, false) => {}
        }
        let open = self.scan.begin_of_open_gap();
        let gap = gaps.first().map(|gap| gap.offset);
        let pip = pips.first().map(|pip| pip.offset);
        let waits = [open, gap, pip, *begun].into_iter().flatten().min();
        waits.unwrap_or(usize::MAX).min(self.scan.offset()).max(*at_least)
    }
}

impl Iterator for Placing<'_> {
    type Item = (usize, u32);

    fn next(&mut self) -> Option<(usize, u32)> {
        loop {
            let settled = self.settled();
            let found = self.attribution.placed.epochs.get(self.given).filter(|&&(at, _)| at < settled);
            if let Some(&place) = found {
                self.given += 1;
                self.last = place;
                return Some(place);
            }
            if self.over {
                return None;
            }
            if settled.saturating_sub(self.last.0) >= AHEAD {
                self.last.0 = settled;
                return Some(self.last);
            }
            self.step();
        }
    }
}

/// Candidates between two clock packets are kept up to this many.
const MAX_CANDIDATES: usize = 1 << 12;

impl Attribution<'_> {
    fn gap(&mut self, gap: Gap) {
        if self.gaps.len() < MAX_CANDIDATES {
            self.gaps.push(gap);
        }
    }

    fn pip(&mut self, offset: usize, process: u64) {
        let changes = self.process != 0 && process != self.process;
        self.process = process;
        if self.pips.len() < MAX_CANDIDATES {
            self.pips.push(Pip { offset, process, changes });
        }
    }

    fn tick(&mut self, offset: usize, tsc: u64, scan: &Scan<'_>) {
        let mut sure = true;
        while let Some(&turn) = self.turns.first().filter(|turn| turn.to <= tsc) {
            sure = false;
            let from = self.begun.unwrap_or(offset);
            self.decide(turn, from, (tsc, offset), scan);
        }
        let Some(turn) = self.turns.first() else { return };
        if tsc < turn.from {
            if sure && self.begun.is_none() && self.running != 0 {
                for pip in &self.pips {
                    self.processes.insert(pip.process, self.running);
                }
            }
            self.begun = None;
            self.pips.clear();
            self.gaps.clear();
        } else if self.begun.is_none() {
            self.begun = Some(offset);
        }
        self.over = self.gaps.len();
        self.tick = (tsc, offset);
    }

    fn end(&mut self, open: Option<Gap>) {
        while let Some(&turn) = self.turns.first() {
            // What comes behind the last clock packet has no time: the last place is the likeliest.
            let last = open.or(self.gaps.last().copied());
            match last.filter(|gap| gap.known <= turn.from && gap.offset >= self.at_least) {
                Some(gap) => self.enter(turn, gap.offset),
                None => return,
            }
        }
    }

    fn decide(&mut self, turn: Turn, from: usize, (tsc, offset): (u64, usize), scan: &Scan<'_>) {
        if self.placed.epochs.last().is_some_and(|&(_, view)| view == turn.view) {
            return self.enter(turn, self.at_least);
        }
        let guess = self.between(turn.from, tsc, offset);
        let at_least = self.at_least;
        let known = |pip: &Pip| turn.pid != 0 && self.processes.get(&pip.process) == Some(&turn.pid);
        let worth = |pip: &Pip| (known(pip), pip.changes);
        let pips = self.pips.iter().filter(|pip| pip.offset >= at_least && (pip.changes || known(pip)));
        let pip = pips.max_by_key(|pip| (worth(pip), std::cmp::Reverse(pip.offset.abs_diff(guess))));
        if let Some(pip) = pip {
            return self.enter(turn, pip.offset);
        }
        // A gap that holds the whole switch is better than one that only touches it: tracing of a thread stops while
        // the kernel switches.
        let lasts = |gap: &Gap, tsc: u64| gap.over.is_none_or(|over| over >= tsc);
        let whole = |number: usize, gap: &Gap| number >= self.over && gap.known <= turn.from && lasts(gap, turn.to);
        let fits = |number, gap: &Gap| {
            let whole = whole(number, gap);
            (whole && gap.may_hold(turn.from, turn.to), whole)
        };
        let open = scan.open_gap();
        let gaps: Vec<_> = (self.gaps.iter().chain(&open).enumerate())
            .filter(|(_, gap)| gap.offset >= at_least && gap.known <= turn.to && lasts(gap, turn.from))
            .map(|(number, gap)| ((fits(number, gap), gap.worth()), *gap))
            .collect();
        let best = gaps.iter().map(|&(worth, _)| worth).max();
        let mut best = gaps.iter().filter(|&&(worth, _)| Some(worth) == best);
        // What core cycles tell comes before what bytes make likely.
        let far = |gap: &Gap| match gap.ticks_from(turn.from) {
            Some(ticks) => (false, ticks),
            None => (true, gap.offset.abs_diff(guess) as u64),
        };
        match best.clone().min_by_key(|(_, gap)| far(gap)) {
            Some((_, gap)) => {
                self.placed.ambiguous += usize::from(best.nth(1).is_some());
                self.enter(turn, gap.offset);
            }
            None => {
                self.placed.coarse += 1;
                self.enter(turn, from.max(at_least));
            }
        }
    }

    /// Where `tsc` falls between the last clock packet and the one at `until`, were time even.
    fn between(&self, tsc: u64, until: u64, offset: usize) -> usize {
        let (since, begin) = self.tick;
        let (part, whole) = (tsc.saturating_sub(since), until.saturating_sub(since));
        if since == 0 || whole == 0 {
            return offset;
        }
        begin + (u128::from(part.min(whole)) * (offset - begin) as u128 / u128::from(whole)) as usize
    }

    fn enter(&mut self, turn: Turn, offset: usize) {
        let epochs = &mut self.placed.epochs;
        match epochs.last_mut() {
            Some(last) if last.0 == offset => last.1 = turn.view,
            Some(last) if last.1 == turn.view => {}
            _ => epochs.push((offset, turn.view)),
        }
        self.at_least = offset;
        self.running = turn.pid;
        self.turns = &self.turns[1..];
        self.begun = None;
    }
}
