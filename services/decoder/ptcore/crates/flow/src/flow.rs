//! The walk: events and code to the blocks that ran.

mod hot;

use crate::access::Access;
use crate::code::{CodeBlock, CodeCache, Exit, Mark, View, Way, SCRATCH};
use crate::config::Config;
use crate::event::{Event, Events, Fault};
use crate::notice::{Place, Placed};
use crate::path::told;
use crate::returns::{Open, ReturnStack};
use crate::{BlockKind, CodeMemory, DisableKind, Loss, Notice, NoticeKind, Reason, Sink};
use pt_packet::{find_psb, Execution, PSB};

/// Counts over one stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    pub packets: u64,
    pub tnt_bits: u64,
    pub instructions: u64,
    pub conditional_branches: u64,
    pub returns: u64,
    pub compressed_returns: u64,
    pub calls: u64,
    pub psb: u64,
    pub ovf: u64,
    pub errors: u64,
    pub lost_bytes: u64,
}

impl std::ops::AddAssign for Statistics {
    fn add_assign(&mut self, other: Statistics) {
        self.packets += other.packets;
        self.tnt_bits += other.tnt_bits;
        self.instructions += other.instructions;
        self.conditional_branches += other.conditional_branches;
        self.returns += other.returns;
        self.compressed_returns += other.compressed_returns;
        self.calls += other.calls;
        self.psb += other.psb;
        self.ovf += other.ovf;
        self.errors += other.errors;
        self.lost_bytes += other.lost_bytes;
    }
}

/// Which part of a stream to decode.
#[derive(Clone, Copy, Debug, Default)]
pub struct Part<'p> {
    /// 0 or the offset of a PSB.
    pub from: usize,
    /// The flow of the part before is known to fit that PSB.
    pub joins: bool,
    /// Offsets of PSBs behind it, in order. The part ends at the first of them from which the rest can be decoded by
    /// itself, else with the stream.
    pub stops: &'p [usize],
}

/// How a part ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    pub statistics: Statistics,
    /// `None` at the end of the stream.
    pub stopped: Option<Stopped>,
    /// The flow does not lead anywhere from the first PSB: it is told once more if the part joins.
    pub astray: bool,
}

/// A PSB from which another part goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped {
    pub psb: usize,
    /// Whether the flow leads there; otherwise it was lost before.
    pub fits: bool,
}

/// Decodes streams that ran through the code of one memory. Blocks are kept from stream to stream.
pub struct Flow<M> {
    memory: M,
    code: CodeCache,
}

impl<M: CodeMemory> Flow<M> {
    pub fn new(memory: M) -> Self {
        Flow { memory, code: CodeCache::new() }
    }

    /// Bytes that the blocks and paths take which are kept from stream to stream.
    pub fn memory(&self) -> usize {
        self.code.memory()
    }

    /// Where the first `count` instructions of the block with the number `id` stand; none of a block that is not kept.
    pub fn instructions(&self, id: u32, count: u32) -> impl Iterator<Item = u64> + '_ {
        let block = self.code.kept(id);
        let lengths = block.map_or(&[][..], |block| self.code.lengths(block));
        lengths.iter().take(count as usize).scan(block.map_or(0, |block| block.start), |next, &length| {
            let address = *next;
            *next = address.wrapping_add(length.into());
            Some(address)
        })
    }

    /// What the first `instructions` of the block with the number `id` (see [`Block::id`](crate::Block::id)) read and
    /// write; nothing of a block that is not kept.
    pub fn accesses(&mut self, epoch: u32, id: u32, instructions: u32) -> &[Access] {
        self.code.accesses(&self.memory, epoch, id, instructions)
    }

    /// Decodes the stream of one thread. `epochs` are pairs of a stream offset and the epoch of the code image from
    /// the packet at that offset on, by offset; epoch 0 before the first.
    ///
    /// Whatever cannot be decoded is told as a loss, and decoding goes on at the next PSB.
    pub fn decode<S: Sink>(
        &mut self,
        data: &[u8],
        config: &Config,
        epochs: &[(usize, u32)],
        sink: &mut S,
    ) -> Statistics {
        self.decode_part(data, config, epochs, &Part::default(), sink).statistics
    }

    /// Decodes a part of the stream, from one PSB up to another.
    pub fn decode_part<S: Sink>(
        &mut self,
        data: &[u8],
        config: &Config,
        epochs: &[(usize, u32)],
        part: &Part<'_>,
        sink: &mut S,
    ) -> Ended {
        let mut walk = Walk {
            memory: &self.memory,
            code: &mut self.code,
            events: Events::new(data, *config),
            sink,
            returns: ReturnStack::new(),
            epochs,
            epoch: 0,
            config: *config,
            mode: None,
            interrupt_flag: None,
            view: View::new(0, Execution::Bits64),
            held: Vec::new(),
            fresh: false,
            mark: 0,
            enabled: false,
            at: SCRATCH,
            ip: 0,
            stopped_at: None,
            pending: None,
            hare: Hare::default(),
            in_code: false,
            resumed_at_note: false,
            joins: part.joins.then_some(part.from),
            astray: false,
            stops: part.stops,
            stopped: None,
            statistics: Statistics::default(),
        };
        walk.sink.paths(walk.code.paths.generation);
        walk.events.alone_from = epochs.first().map_or(usize::MAX, |&(from, _)| from);
        walk.stream(data, part.from);
        let events = &walk.events;
        let (packets, psb, ovf) = match walk.stopped {
            Some(_) => events.before_psb,
            None => (events.packets, events.psb, events.ovf),
        };
        let statistics = Statistics { packets, tnt_bits: events.tnt_bits, psb, ovf, ..walk.statistics };
        Ended { statistics, stopped: walk.stopped, astray: walk.astray }
    }
}

struct Walk<'w, 'd, M, S> {
    memory: &'w M,
    code: &'w mut CodeCache,
    events: Events<'d>,
    sink: &'w mut S,
    returns: ReturnStack,
    epochs: &'w [(usize, u32)],
    epoch: u32,
    config: Config,
    /// As far as known since the last PSB or overflow.
    mode: Option<Execution>,
    interrupt_flag: Option<bool>,
    view: View,
    /// Notices to be told with the next branch that takes a packet, or the next enable.
    held: Vec<Notice>,
    /// The last packet used up said where execution is, and nothing was read since.
    fresh: bool,
    /// Instructions that had run when one said so.
    mark: u64,
    enabled: bool,
    /// The block about to run, while enabled.
    at: u32,
    /// Where it begins, or the address that could not be read.
    ip: u64,
    /// Where tracing was last disabled.
    stopped_at: Option<u64>,
    pending: Option<Event>,
    hare: Hare,
    /// The last fault is that code does not fit the packets, which are whole.
    in_code: bool,
    /// The pending note is where the flow was resumed.
    resumed_at_note: bool,
    /// The flow before fits the PSB from which on this one goes, and nothing was read since.
    joins: Option<usize>,
    astray: bool,
    stops: &'w [usize],
    stopped: Option<Stopped>,
    statistics: Statistics,
}

/// Brent's cycle detection over blocks that were left without using up any packet.
#[derive(Clone, Copy, Default)]
struct Hare {
    tortoise: u64,
    steps: u32,
    power: u32,
}

impl Hare {
    #[inline(always)]
    fn rest(&mut self) {
        self.power = 0;
    }

    /// Whether the block at `at` closes a cycle.
    #[inline(always)]
    fn steps_on(&mut self, at: u64) -> bool {
        if self.power == 0 {
            *self = Hare { tortoise: at, steps: 0, power: 1 };
            return false;
        }
        if at == self.tortoise {
            return true;
        }
        self.steps += 1;
        if self.steps == self.power {
            *self = Hare { tortoise: at, steps: 0, power: self.power.saturating_mul(2) };
        }
        false
    }
}

/// What a pending event means for the block about to run.
enum Ahead {
    Run,
    Moved,
    Stopped,
}

impl<M: CodeMemory, S: Sink> Walk<'_, '_, M, S> {
    fn stream(&mut self, data: &[u8], from: usize) {
        let mut lost = Loss {
            offset: 0,
            size: 0,
            reason: Reason::BeforeFirstPsb,
            address: 0,
            epoch: self.epochs.first().map_or(0, |&(_, epoch)| epoch),
            tsc0: 0,
            tsc1: 0,
        };
        let mut from = from;
        lost.offset = from;
        loop {
            let psb = find_psb(data, from);
            let end = psb.unwrap_or(data.len());
            lost.offset = lost.offset.min(end);
            lost.size = end - lost.offset;
            let Some(psb) = psb else {
                return self.lose(lost);
            };
            self.forget();
            self.enter_epoch(psb);
            let synchronized = self.events.synchronize(psb);
            self.lose(lost);
            if self.stops.binary_search(&psb).is_ok() {
                self.stopped = Some(Stopped { psb, fits: false });
                return;
            }
            let mut ended = synchronized.and_then(|event| self.flow(event));
            while self.config.resume_at_address || self.config.without_tnt {
                if !self.config.resume_at_address && ended.is_err_and(|fault| fault.reason != Reason::NotTraced) {
                    break;
                }
                let (Err(fault), true) = (ended, self.in_code) else { break };
                self.in_code = false;
                ended = self.resume(fault, data.len()).and_then(|going| if going { self.run() } else { Ok(()) });
            }
            let Err(fault) = ended else { return };
            if self.stopped.is_some() {
                return;
            }
            let now = self.events.time.now();
            let joins = self.joins.take();
            let again = self.events.passed_psb.filter(|&passed| passed > psb || joins == Some(passed));
            // A packet that was cut short may have taken the first bytes of the next PSB for its own.
            let bad = fault.offset.min(self.events.position());
            self.astray |= again == Some(psb);
            from = again.unwrap_or(bad.saturating_sub(PSB.len() - 1).max(psb + 1));
            lost = Loss {
                offset: fault.offset,
                size: 0,
                reason: fault.reason,
                address: self.ip,
                epoch: self.epoch,
                tsc0: now,
                tsc1: now,
            };
            self.statistics.errors += 1;
        }
    }

    fn lose(&mut self, lost: Loss) {
        if lost.reason == Reason::BeforeFirstPsb && lost.size == 0 {
            return;
        }
        self.statistics.lost_bytes += lost.size as u64;
        self.sink.loss(&Loss { tsc1: self.events.time.now(), ..lost });
    }

    fn forget(&mut self) {
        self.returns.clear();
        self.hare.rest();
        (self.enabled, self.pending, self.stopped_at, self.ip) = (false, None, None, 0);
        (self.mode, self.interrupt_flag, self.fresh, self.in_code) = (None, None, false, false);
        self.held.clear();
    }

    /// From the status at a PSB to the end of the stream.
    fn flow(&mut self, status: Event) -> Result<(), Fault> {
        self.pending = Some(status);
        self.run()
    }

    fn run(&mut self) -> Result<(), Fault> {
        loop {
            let more = if self.enabled { self.walk()? } else { self.idle()? };
            if !more || self.stopped.is_some() {
                return Ok(());
            }
        }
    }

    /// While tracing is disabled.
    fn idle(&mut self) -> Result<bool, Fault> {
        let event = match self.pending.take() {
            Some(event) => event,
            None => self.events.next()?,
        };
        match event {
            Event::Enable { ip: Some(ip) } => {
                self.take_mode(Some(ip), false);
                self.enter_epoch(self.events.last_offset);
                self.enable(ip)?;
            }
            Event::Status { ip: Some(ip) } => {
                self.take_mode(Some(ip), true);
                self.enter_epoch(self.events.last_offset);
                self.stand_at(ip)?;
                if self.joins == Some(self.events.offset) {
                    self.events.passed_psb = self.joins;
                }
            }
            Event::Overflow { ip } => self.overflow(ip, None)?,
            Event::Note => {
                if let Some(placed) = self.events.note.take() {
                    self.notice(placed.notice);
                }
            }
            Event::End => return Ok(false),
            Event::Status { ip: None } | Event::Disable { .. } => {
                let status = matches!(event, Event::Status { .. });
                self.take_mode(None, status);
                self.tell_held();
                if status && self.joins == Some(self.events.offset) {
                    self.events.passed_psb = self.joins;
                }
                // What comes next says where it is, but need not say in which mode.
                let usual = self.view == View::new(self.epoch, Execution::Bits64);
                if status && usual && self.stops_at(self.events.offset) {
                    return Ok(false);
                }
            }
            _ => return Err(self.unexpected(&event)),
        }
        Ok(true)
    }

    fn enable(&mut self, ip: u64) -> Result<(), Fault> {
        self.enabled = true;
        self.events.passed_psb = None;
        let resumed = self.stopped_at.take() == Some(ip);
        self.sink.enabled(ip, resumed, self.events.time.now());
        self.tell_held();
        self.fresh = true;
        self.go(ip)
    }

    /// Execution is known to be at `ip` without a TIP.PGE.
    fn stand_at(&mut self, ip: u64) -> Result<(), Fault> {
        self.notice(Notice { kind: NoticeKind::Standing, ip: Some(ip), status: true });
        self.enable(ip)
    }

    /// Goes on at the next packet that says where, behind code that does not fit the packets. False at the end.
    #[cold]
    fn resume(&mut self, fault: Fault, end: usize) -> Result<bool, Fault> {
        let now = self.events.time.now();
        self.returns.clear();
        self.held.clear();
        self.hare.rest();
        self.enabled = false;
        let traced = fault.reason != Reason::NotTraced;
        let mut notices = Vec::new();
        let event = loop {
            let event = match self.pending.take() {
                // Its place was not found from its own address on.
                Some(Event::Note) if std::mem::take(&mut self.resumed_at_note) => {
                    notices.extend(self.events.note.take().map(|placed| placed.notice));
                    continue;
                }
                Some(event) => event,
                // What follows is one loss with this.
                None => self.events.next().map_err(|bad| if traced { fault } else { bad })?,
            };
            self.events.count = 0;
            match event {
                Event::Branches | Event::Target { ip: None } | Event::AsyncBranch { to: None, .. } => {}
                Event::Note => match self.events.note {
                    Some(Placed { notice: Notice { ip: None, .. }, .. }) => {
                        notices.extend(self.events.note.map(|placed| placed.notice).filter(|_| notices.len() < 64));
                    }
                    _ => break event,
                },
                _ => break event,
            }
        };
        let resumed = if event == Event::End { end } else { self.events.offset };
        let size = if traced { resumed.saturating_sub(fault.offset) } else { 0 };
        self.statistics.errors += u64::from(traced);
        let (address, epoch) = (self.ip, self.epoch);
        self.lose(Loss { offset: fault.offset, size, reason: fault.reason, address, epoch, tsc0: now, tsc1: now });
        if event != Event::End {
            notices.into_iter().for_each(|notice| self.notice(notice));
        }
        match event {
            Event::Target { ip: Some(ip) } | Event::Status { ip: Some(ip) } => {
                self.events.passed_psb = None;
                self.take_mode(Some(ip), false);
                self.enter_epoch(self.events.last_offset);
                self.stand_at(ip)?;
            }
            Event::AsyncBranch { from: ip, .. } | Event::AsyncDisable { at: ip, .. } => {
                // Only what happens there is of interest, not the code.
                self.notice(Notice { kind: NoticeKind::Standing, ip: Some(ip), status: true });
                self.sink.enabled(ip, false, self.events.time.now());
                (self.enabled, self.ip, self.at) = (true, ip, self.code.nowhere(ip));
                self.pending = Some(event);
            }
            Event::Note => {
                let Some(Placed { notice, place }) = self.events.note else { return Ok(true) };
                let ip = notice.ip.unwrap_or(0);
                self.notice(Notice { kind: NoticeKind::Standing, ip: Some(ip), status: true });
                self.enabled = true;
                self.sink.enabled(ip, false, self.events.time.now());
                if place == Place::Before(ip) {
                    self.notice(notice);
                }
                self.fresh = true;
                self.go(ip)?;
                if place != Place::Before(ip) {
                    match self.pending {
                        None => (self.pending, self.resumed_at_note) = (Some(event), true),
                        // The code that it stands behind is not known.
                        Some(_) => self.notice(notice),
                    }
                }
            }
            Event::Enable { .. } => {
                let mode = self.events.mode;
                self.stop(DisableKind::Synchronous, 0, None, 0);
                self.events.mode = mode;
                self.pending = Some(event);
            }
            Event::Disable { ip } => self.stop(DisableKind::Synchronous, 0, ip, 0),
            Event::End => return Ok(false),
            _ => self.pending = Some(event),
        }
        Ok(true)
    }

    fn overflow(&mut self, ip: Option<u64>, from: Option<u64>) -> Result<(), Fault> {
        self.sink.overflow(self.events.offset, from, self.events.time.now());
        self.returns.clear();
        (self.mode, self.interrupt_flag) = (None, None);
        self.take_mode(ip, false);
        self.enter_epoch(self.events.last_offset);
        (self.enabled, self.stopped_at) = (false, None);
        ip.map_or(Ok(()), |ip| self.stand_at(ip))
    }

    /// While tracing is enabled. False at the end of the stream.
    fn walk(&mut self) -> Result<bool, Fault> {
        loop {
            if self.events.count != 0 {
                self.branches()?;
            }
            if self.events.count == 0 {
                match self.ahead()? {
                    Ahead::Run => {}
                    Ahead::Moved => continue,
                    Ahead::Stopped => return Ok(self.pending != Some(Event::End)),
                }
            }
            let number = self.at;
            let block = *self.code.block(number);
            match block.exit {
                Exit::Cond if self.events.count != 0 => {
                    self.events.count -= 1;
                    self.hare.rest();
                    if self.events.bits >> self.events.count & 1 != 0 {
                        self.tell(&block, BlockKind::CondTaken, block.target);
                        self.follow(number, Way::Target, block.target)?;
                    } else {
                        self.tell(&block, BlockKind::CondNotTaken, block.end);
                        self.follow(number, Way::Next, block.end)?;
                    }
                }
                Exit::Linear => {
                    self.watch()?;
                    self.tell(&block, BlockKind::Linear, block.end);
                    self.follow(number, Way::Next, block.end)?;
                }
                Exit::Jump | Exit::Call => {
                    if self.disables(&block) {
                        return Ok(true);
                    }
                    self.watch()?;
                    let call = block.exit == Exit::Call;
                    self.tell(&block, if call { BlockKind::Call } else { BlockKind::Jump }, block.target);
                    // A call of the next instruction only asks where it is; the processor does not compress its return.
                    if call && block.target != block.end {
                        self.returns.push(block.end, number);
                    }
                    self.follow(number, Way::Target, block.target)?;
                }
                Exit::Return if self.events.count != 0 => {
                    self.events.count -= 1;
                    self.hare.rest();
                    self.compressed_return(&block)?;
                }
                _ => match self.transfer(number, &block)? {
                    Ahead::Stopped if self.pending == Some(Event::End) => return Ok(false),
                    Ahead::Stopped => return Ok(true),
                    _ => {}
                },
            }
        }
    }

    #[inline(always)]
    fn compressed_return(&mut self, block: &CodeBlock) -> Result<(), Fault> {
        if self.events.bits >> self.events.count & 1 == 0 {
            self.tell_before_last(block);
            return Err(self.fault(Reason::BadReturn));
        }
        let Some(open) = self.returns.pop() else {
            self.tell_before_last(block);
            return Err(self.fault(Reason::EmptyReturnStack));
        };
        self.statistics.compressed_returns += 1;
        match open {
            Open::Block(call) => {
                let target = self.code.block(call).end;
                self.tell(block, BlockKind::Return, target);
                self.follow(call, Way::Next, target)
            }
            // The scratch block of a call over a section border may be another by now.
            Open::Address(target) => {
                self.tell(block, BlockKind::Return, target);
                self.go(target)
            }
        }
    }

    /// Looks at the next event when no branches are left: it may concern the block about to run.
    fn ahead(&mut self) -> Result<Ahead, Fault> {
        let event = match self.pending {
            Some(event) => event,
            None => {
                let event = self.events.next()?;
                if event == Event::Branches {
                    return self.taken_up(self.ip).map(|()| Ahead::Moved);
                }
                self.pending = Some(event);
                event
            }
        };
        match event {
            Event::Target { .. } => Ok(Ahead::Run),
            Event::End if self.config.stop_at_last_packet => Ok(Ahead::Stopped),
            Event::Disable { ip: None } if self.code.block(self.at).has(Mark::Cr3) => Ok(self.disabled_by_cr3()),
            Event::Disable { .. } | Event::End => Ok(Ahead::Run),
            Event::Note => self.note(),
            Event::AsyncBranch { from, to } if self.runs_up_to(from, to) => {
                let Some(to) = to else { return Err(self.fault(Reason::SuppressedTarget)) };
                self.tell_held();
                self.sink.interrupt(from, to, self.events.time.now());
                self.taken_up(to).map(|()| Ahead::Moved)
            }
            Event::AsyncDisable { at, ip } if self.enters_vm(at) => {
                self.pending = Some(Event::Disable { ip });
                Ok(Ahead::Run)
            }
            Event::AsyncDisable { at, ip } if at == self.ip || self.runs_up_to(at, ip) => {
                self.stop(DisableKind::Asynchronous, at, ip, at);
                Ok(Ahead::Stopped)
            }
            Event::AsyncBranch { .. } | Event::AsyncDisable { .. } => Ok(Ahead::Run),
            Event::Overflow { ip } => {
                self.pending = None;
                self.tell_held();
                self.overflow(ip, Some(self.ip)).map(|()| Ahead::Stopped)
            }
            Event::Status { ip } => self.status(ip),
            Event::Enable { .. } | Event::Branches => Err(self.unexpected(&event)),
        }
    }

    /// Tells the instructions before `at` when it is in the block about to run.
    fn runs_up_to(&mut self, at: u64, target: Option<u64>) -> bool {
        let block = *self.code.block(self.at);
        let Some(count) = self.instructions_before(&block, at) else { return false };
        self.tell_first(&block, count, BlockKind::Interrupted, target.unwrap_or(0));
        true
    }

    /// How many instructions of the block stand before the one at `at`.
    fn instructions_before(&self, block: &CodeBlock, at: u64) -> Option<u16> {
        if at == block.start {
            return Some(0);
        }
        if at < block.start || at > block.last {
            return None;
        }
        let (mut count, mut end) = (0, block.start);
        for &length in self.code.lengths(block) {
            if end >= at {
                break;
            }
            end += u64::from(length);
            count += 1;
        }
        (end == at).then_some(count)
    }

    /// Tells the first `count` instructions of the block, at most all; returns where the next one is, which is the
    /// target of a linear end.
    fn tell_first(&mut self, block: &CodeBlock, count: u16, kind: BlockKind, target: u64) -> u64 {
        let (mut last, mut end) = (block.start, block.start);
        for &length in self.code.lengths(block).iter().take(count.into()) {
            last = end;
            end += u64::from(length);
        }
        if count > 0 {
            let target = if kind == BlockKind::Linear { end } else { target };
            self.tell(&block.prefix(count, last, end), kind, target);
        }
        end
    }

    /// What a PSB says must fit: it is compared where the flow comes by, at the latest where the next packet is needed.
    #[cold]
    fn status(&mut self, ip: Option<u64>) -> Result<Ahead, Fault> {
        let Some(ip) = ip else {
            self.pending = None;
            return Ok(Ahead::Moved);
        };
        let block = *self.code.block(self.at);
        let mode_fits = match (self.events.mode, self.mode) {
            (Some((says, _)), Some(known)) => says == known,
            _ => true,
        };
        if mode_fits && (ip == self.ip || self.instructions_before(&block, ip).is_some()) {
            self.pending = None;
            // No return is compressed over a PSB (SDM section "RET Compression").
            self.returns.clear();
            if self.events.mode.is_some() && self.stops_at(self.events.offset) {
                self.runs_up_to(ip, None);
                return Ok(Ahead::Stopped);
            }
            self.take_mode(Some(ip), true);
            self.tell_held();
            return Ok(Ahead::Moved);
        }
        match block.exit {
            Exit::Linear | Exit::Jump | Exit::Call if mode_fits => Ok(Ahead::Run),
            _ => Err(self.fault(Reason::BadStatus)),
        }
    }

    /// Whether the flow ends at the PSB, which fits it and says what whoever goes on from there has to know.
    fn stops_at(&mut self, psb: usize) -> bool {
        let whole = !self.events.busy && self.epochs.first().is_none_or(|&(from, _)| from > self.events.last_offset);
        if !whole || self.stops.binary_search(&psb).is_err() {
            return false;
        }
        self.stopped = Some(Stopped { psb, fits: true });
        true
    }

    /// A pending note in its place among the instructions of the block about to run.
    #[cold]
    fn note(&mut self) -> Result<Ahead, Fault> {
        let Some(placed) = self.events.note else {
            self.pending = None;
            return Ok(Ahead::Moved);
        };
        if std::mem::take(&mut self.fresh) {
            self.mark = self.statistics.instructions;
        }
        let block = *self.code.block(self.at);
        let direct = matches!(block.exit, Exit::Linear | Exit::Jump | Exit::Call);
        let count = match placed.place {
            Place::Here => Some(0),
            Place::Before(ip) if ip == self.ip => Some(0),
            Place::Before(ip) => self.instructions_before(&block, ip),
            Place::Behind(ip) => self.instructions_before(&block, ip).map(|before| before + 1),
            Place::PtWrite => self.code.behind(self.memory, self.view, &block, Mark::PtWrite),
            Place::Cr3 if block.exit != Exit::Far => self.code.behind(self.memory, self.view, &block, Mark::Cr3),
            Place::Vmcs if block.exit != Exit::Far => self.code.behind(self.memory, self.view, &block, Mark::Vmcs),
            Place::Branch | Place::Cr3 | Place::Vmcs => (!direct).then_some(block.instructions),
            Place::After(number) => {
                let left = (self.mark + u64::from(number)).saturating_sub(self.statistics.instructions);
                (left < u64::from(block.instructions)).then_some(left as u16)
            }
        };
        match count {
            None => Ok(Ahead::Run),
            Some(0) => {
                (self.pending, self.resumed_at_note) = (None, false);
                self.notice(placed.notice);
                Ok(Ahead::Moved)
            }
            Some(count) if count < block.instructions || block.exit == Exit::Linear => {
                (self.pending, self.resumed_at_note) = (None, false);
                let next = self.tell_first(&block, count, BlockKind::Linear, 0);
                self.ip = next;
                self.notice(placed.notice);
                self.go(next)?;
                Ok(Ahead::Moved)
            }
            // Behind the last instruction, which leads elsewhere.
            Some(_) if direct => {
                self.events.note = Some(Placed { place: Place::Before(block.target), ..placed });
                Ok(Ahead::Run)
            }
            Some(_) => {
                (self.pending, self.resumed_at_note) = (None, false);
                self.held.push(placed.notice);
                Ok(Ahead::Moved)
            }
        }
    }

    /// A pending note of which the place did not come by.
    #[cold]
    fn late_note(&mut self) -> Result<Ahead, Fault> {
        (self.pending, self.resumed_at_note) = (None, false);
        let Some(Placed { notice, .. }) = self.events.note.take() else { return Ok(Ahead::Moved) };
        // The branch before an abort may be recorded wrongly: execution is where the abort was.
        if let NoticeKind::Transaction { aborted: true, .. } = notice.kind {
            if let Some(ip) = notice.ip.filter(|_| self.config.errata.bdm64) {
                self.notice(notice);
                self.go(ip)?;
                return Ok(Ahead::Moved);
            }
        }
        self.notice(notice);
        Ok(Ahead::Moved)
    }

    /// Tells a notice; a mode is taken over.
    #[cold]
    fn notice(&mut self, notice: Notice) {
        let mut notice = notice;
        match notice.kind {
            NoticeKind::ExecutionMode(mode) => {
                if self.mode.replace(mode) == Some(mode) {
                    return;
                }
                self.view = View::new(self.epoch, mode);
            }
            NoticeKind::InterruptFlag(flag) if self.interrupt_flag.replace(flag) == Some(flag) => return,
            NoticeKind::Trigger { .. } => {
                notice.ip = notice.ip.or(self.enabled.then_some(self.ip));
                self.mark = self.statistics.instructions;
            }
            _ => {}
        }
        if notice.ip.is_some() {
            self.mark = self.statistics.instructions;
        }
        self.sink.notice(&notice, self.events.time.now());
    }

    #[cold]
    fn tell_held(&mut self) {
        if !self.held.is_empty() {
            for notice in std::mem::take(&mut self.held) {
                self.sink.notice(&notice, self.events.time.now());
            }
        }
    }

    /// A TIP.PGD without address may also be of an instruction that changes CR3.
    #[cold]
    fn disabled_by_cr3(&mut self) -> Ahead {
        let block = *self.code.block(self.at);
        let Some(count) = self.code.behind(self.memory, self.view, &block, Mark::Cr3) else { return Ahead::Run };
        let end = self.tell_first(&block, count, BlockKind::Far, 0);
        let last = end - u64::from(self.code.lengths(&block)[usize::from(count) - 1]);
        self.stop(DisableKind::Synchronous, last, None, end);
        Ahead::Stopped
    }

    /// Whether what looks like an interrupt is the VM entry with which the block about to run ends.
    fn enters_vm(&self, at: u64) -> bool {
        let block = self.code.block(self.at);
        self.config.errata.skd022 && block.last == at && block.has(Mark::VmEntry)
    }

    /// Whether a direct branch is what disables tracing.
    #[inline(always)]
    fn disables(&mut self, block: &CodeBlock) -> bool {
        match self.pending {
            Some(Event::Disable { ip }) => self.disabled_by(block, ip),
            _ => false,
        }
    }

    #[cold]
    fn disabled_by(&mut self, block: &CodeBlock, ip: Option<u64>) -> bool {
        let leaves = match ip {
            Some(ip) => ip == block.target,
            None => self.config.errata.skl014 && !self.config.filter.traces(block.target),
        };
        if !leaves || self.events.count != 0 {
            return false;
        }
        let kind = if block.exit == Exit::Call { BlockKind::Call } else { BlockKind::Jump };
        self.tell(block, kind, block.target);
        self.stop(DisableKind::Synchronous, block.last, ip, block.end);
        true
    }

    /// A branch that needs a packet other than the branches at hand.
    fn transfer(&mut self, number: u32, block: &CodeBlock) -> Result<Ahead, Fault> {
        let event = match self.pending {
            Some(event) => event,
            // Targets may stand behind branches that come after them (SDM section "Deferred TIPs").
            None => {
                let event = self.events.next()?;
                self.pending = Some(event);
                event
            }
        };
        let kind = match block.exit {
            Exit::Cond if event == (Event::Disable { ip: Some(block.end) }) => BlockKind::CondNotTaken,
            Exit::Cond => BlockKind::CondTaken,
            Exit::Return => BlockKind::Return,
            Exit::IndirectCall => BlockKind::IndirectCall,
            Exit::IndirectJump => BlockKind::IndirectJump,
            _ => BlockKind::Far,
        };
        match event {
            Event::Target { ip: Some(ip) } if block.exit != Exit::Cond => {
                self.tell(block, kind, ip);
                if block.exit == Exit::IndirectCall {
                    self.returns.push(block.end, number);
                }
                self.hare.rest();
                self.taken_up(ip)?;
                Ok(Ahead::Moved)
            }
            Event::Target { ip: None } if block.exit != Exit::Cond => {
                self.tell_before_last(block);
                Err(self.fault(Reason::SuppressedTarget))
            }
            Event::Disable { ip } if self.events.count == 0 => {
                self.tell(block, kind, ip.unwrap_or(0));
                self.stop(DisableKind::Synchronous, block.last, ip, block.end);
                Ok(Ahead::Stopped)
            }
            Event::End => {
                self.tell_before_last(block);
                Ok(Ahead::Stopped)
            }
            Event::Note => self.late_note(),
            _ if block.exit == Exit::Cond && self.config.without_tnt => {
                self.tell_before_last(block);
                Err(self.fault(Reason::NotTraced))
            }
            Event::Status { .. } => Err(self.fault(Reason::BadStatus)),
            _ => {
                self.tell_before_last(block);
                Err(self.unexpected(&event))
            }
        }
    }

    fn stop(&mut self, kind: DisableKind, at: u64, target: Option<u64>, stopped_at: u64) {
        self.pending = None;
        self.enabled = false;
        self.stopped_at = Some(stopped_at);
        self.hare.rest();
        self.tell_held();
        self.take_mode(None, false);
        self.enter_epoch(self.events.last_offset);
        self.sink.disabled(kind, at, target, self.events.time.now());
        self.tell_held();
    }

    /// The pending event is used up; execution goes on at `ip`.
    fn taken_up(&mut self, ip: u64) -> Result<(), Fault> {
        let branches = self.pending.take().is_none();
        self.events.passed_psb = None;
        self.fresh = true;
        if self.events.mode.is_some() || !self.held.is_empty() {
            self.take_mode(Some(ip), false);
            self.tell_held();
        }
        let view = self.view;
        self.enter_epoch(self.events.last_offset);
        if branches && view == self.view {
            return Ok(());
        }
        self.hare.rest();
        self.go(ip)
    }

    /// Takes the mode that comes with the event; a change is told with what is held.
    #[cold]
    fn take_mode(&mut self, ip: Option<u64>, status: bool) {
        let Some((mode, flag)) = self.events.mode.take() else { return };
        if self.mode.replace(mode) != Some(mode) {
            self.view = View::new(self.epoch, mode);
            self.held.push(Notice { kind: NoticeKind::ExecutionMode(mode), ip, status });
        }
        if self.interrupt_flag.replace(flag) != Some(flag) {
            self.held.push(Notice { kind: NoticeKind::InterruptFlag(flag), ip, status });
        }
    }

    /// Takes the code image as of the packet at `offset`.
    #[inline(always)]
    fn enter_epoch(&mut self, offset: usize) {
        while let Some((&(from, epoch), rest)) = self.epochs.split_first() {
            if from > offset {
                break;
            }
            self.epochs = rest;
            self.epoch = epoch;
            self.view = self.view.of_epoch(epoch);
            self.events.alone_from = rest.first().map_or(usize::MAX, |&(from, _)| from);
        }
    }

    /// Goes on at `address`, which is on `way` out of block `from`.
    #[inline(always)]
    fn follow(&mut self, from: u32, way: Way, address: u64) -> Result<(), Fault> {
        self.ip = address;
        self.at = match self.code.block(from).linked(way, self.view) {
            Some(number) => number,
            None => match self.code.link(self.memory, self.view, from, way, address) {
                Ok(number) => number,
                Err(reason) => return self.end_before(address, reason),
            },
        };
        Ok(())
    }

    fn go(&mut self, address: u64) -> Result<(), Fault> {
        self.ip = address;
        match self.code.find(self.memory, self.view, address) {
            Ok(number) => self.at = number,
            Err(reason) => return self.stop_before(address, reason),
        }
        Ok(())
    }

    /// Where the stream ends, nothing tells that what a block leads to by itself has run.
    #[cold]
    fn end_before(&mut self, address: u64, reason: Reason) -> Result<(), Fault> {
        let stopped = self.stop_before(address, reason);
        if self.pending != Some(Event::End) {
            return stopped;
        }
        self.at = self.code.nowhere(address);
        Ok(())
    }

    /// Where tracing stops before the first instruction, no code is needed: it may be known only from the next epoch on.
    #[cold]
    fn stop_before(&mut self, address: u64, reason: Reason) -> Result<(), Fault> {
        let fault = self.fault(reason);
        while self.events.count == 0 && (self.pending.is_none() || self.tells_uncertainty()) {
            self.pending = Some(self.events.next().map_err(|_| fault)?);
        }
        match self.pending {
            Some(Event::AsyncDisable { at, .. }) if at == address => {
                self.at = SCRATCH;
                Ok(())
            }
            Some(Event::End) if self.config.stop_at_last_packet => {
                self.at = self.code.nowhere(address);
                Ok(())
            }
            _ => Err(fault),
        }
    }

    /// Tells a pending uncertainty of the clock, which no code is needed to place.
    fn tells_uncertainty(&mut self) -> bool {
        let Some(Placed { notice, .. }) = self.events.note.filter(|_| self.pending == Some(Event::Note)) else {
            return false;
        };
        if !matches!(notice.kind, NoticeKind::Uncertainty(_)) {
            return false;
        }
        (self.pending, self.resumed_at_note, self.events.note) = (None, false, None);
        self.notice(notice);
        true
    }

    #[inline(always)]
    fn watch(&mut self) -> Result<(), Fault> {
        if self.hare.steps_on(self.ip) {
            return Err(self.fault(Reason::EndlessLoop));
        }
        Ok(())
    }

    #[inline(always)]
    fn tell(&mut self, block: &CodeBlock, kind: BlockKind, target: u64) {
        self.statistics.instructions += u64::from(block.instructions);
        match kind {
            BlockKind::CondTaken | BlockKind::CondNotTaken => self.statistics.conditional_branches += 1,
            BlockKind::Return => self.statistics.returns += 1,
            BlockKind::Call | BlockKind::IndirectCall => self.statistics.calls += 1,
            _ => {}
        }
        self.sink.block(&told(self.code, block, kind, target, self.epoch), self.events.time.now());
    }

    fn tell_part(&mut self, block: &CodeBlock, count: u16, last: u64, end: u64, target: u64) {
        self.tell(&block.prefix(count, last, end), BlockKind::Interrupted, target);
    }

    /// The instructions of a block but its branch, which cannot be followed.
    fn tell_before_last(&mut self, block: &CodeBlock) {
        let count = block.instructions - 1;
        if count == 0 {
            return;
        }
        let before = u64::from(self.code.lengths(block)[usize::from(count) - 1]);
        self.tell_part(block, count, block.last - before, block.last, block.last);
        self.ip = block.last;
    }

    #[cold]
    fn fault(&mut self, reason: Reason) -> Fault {
        self.in_code = true;
        Fault { offset: self.events.offset, reason }
    }

    #[cold]
    fn unexpected(&mut self, event: &Event) -> Fault {
        self.fault(Reason::UnexpectedPacket(event.packet_name()))
    }
}
