//! Packets to events: what a walk along the code has to react to.

use crate::config::Config;
use crate::notice::{NoticeKind, Place, Placed};
use crate::system::System;
use crate::time::Time;
use crate::Reason;
use pt_packet::{Error, ErrorKind, Execution, Ip, Packet, Reader};
use std::collections::VecDeque;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Branches were put into `Events::bits`.
    Branches,
    Target {
        ip: Option<u64>,
    },
    /// Synchronous: by the next far transfer, or the next branch that can go to `ip`.
    Disable {
        ip: Option<u64>,
    },
    AsyncBranch {
        from: u64,
        to: Option<u64>,
    },
    AsyncDisable {
        at: u64,
        ip: Option<u64>,
    },
    Enable {
        ip: Option<u64>,
    },
    /// `ip` is where tracing goes on, `None` when it is disabled by then.
    Overflow {
        ip: Option<u64>,
    },
    /// PSB+ was passed; `ip` when tracing is enabled there.
    Status {
        ip: Option<u64>,
    },
    /// `Events::note` is to be told.
    Note,
    End,
}

impl Event {
    pub fn packet_name(&self) -> &'static str {
        match self {
            Event::Branches => "TNT",
            Event::Target { .. } => "TIP",
            Event::Disable { .. } => "TIP.PGD",
            Event::AsyncBranch { .. } => "FUP with TIP",
            Event::AsyncDisable { .. } => "FUP with TIP.PGD",
            Event::Enable { .. } => "TIP.PGE",
            Event::Overflow { .. } => "OVF",
            Event::Status { .. } => "PSB",
            Event::Note => "a packet tied to the code",
            Event::End => "the end of the stream",
        }
    }
}

/// Decoding cannot go on at `offset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    pub offset: usize,
    pub reason: Reason,
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        let reason = match error.kind {
            ErrorKind::Unknown => Reason::UnknownPacket(error.bytes),
            ErrorKind::Truncated => Reason::TruncatedPacket,
        };
        Fault { offset: error.offset, reason }
    }
}

/// MODE.Exec: code size and interrupt flag.
pub type Mode = (Execution, bool);

pub struct Events<'a> {
    config: Config,
    pub reader: Reader<'a>,
    pub last_ip: u64,
    pub time: Time,
    /// Branches not yet taken up, the oldest in bit `count - 1`.
    pub bits: u64,
    pub count: u32,
    /// Offset of the first packet of the last event.
    pub offset: usize,
    /// Offset of the last packet of the last event.
    pub last_offset: usize,
    /// A PSB that was passed since this was last cleared.
    pub passed_psb: Option<usize>,
    /// Execution mode that comes with the last event.
    pub mode: Option<Mode>,
    /// What a `Note` event tells.
    pub note: Option<Placed>,
    /// Offset from which on TNT packets are not joined with those before.
    pub alone_from: usize,
    /// Events that came with one packet, each with its mode, and the notes of those that are `Note`.
    queue: VecDeque<(Event, Option<Mode>)>,
    notes: VecDeque<Placed>,
    system: System,
    /// Something is queued or waits for another packet.
    pub busy: bool,
    pub packets: u64,
    pub tnt_bits: u64,
    pub psb: u64,
    pub ovf: u64,
    /// The counts of packets, PSBs and overflows in front of the last PSB.
    pub before_psb: (u64, u64, u64),
}

impl<'a> Events<'a> {
    pub fn new(data: &'a [u8], config: Config) -> Self {
        Events {
            config,
            reader: Reader::with_errata(data, config.errata),
            last_ip: 0,
            time: Time::new(config),
            bits: 0,
            count: 0,
            offset: 0,
            last_offset: 0,
            passed_psb: None,
            mode: None,
            note: None,
            alone_from: usize::MAX,
            queue: VecDeque::new(),
            notes: VecDeque::new(),
            system: System::default(),
            busy: false,
            packets: 0,
            tnt_bits: 0,
            psb: 0,
            ovf: 0,
            before_psb: (0, 0, 0),
        }
    }

    /// Where reading would go on.
    pub fn position(&self) -> usize {
        self.reader.offset()
    }

    /// Forgets all state and reads the PSB+ at `offset`. The event is a `Note`, a `Status` or an `Overflow`.
    pub fn synchronize(&mut self, offset: usize) -> Result<Event, Fault> {
        self.reader.seek(offset);
        (self.last_ip, self.bits, self.count) = (0, 0, 0);
        (self.mode, self.passed_psb) = (None, None);
        self.queue.clear();
        self.notes.clear();
        self.system = System::default();
        self.offset = offset;
        self.last_offset = offset;
        // What a PSB+ tells is a group.
        self.busy = true;
        match self.packet()? {
            Some(Packet::Psb) => self.psb_plus(offset),
            _ => Err(self.unexpected("no PSB")),
        }
    }

    /// The next event. Branches of a TNT packet must be used up before, unless a target is asked for.
    pub fn next(&mut self) -> Result<Event, Fault> {
        self.mode = None;
        if self.busy {
            return self.grouped(None);
        }
        loop {
            self.offset = self.reader.offset();
            self.last_offset = self.offset;
            let Some(packet) = self.packet()? else { return Ok(Event::End) };
            match packet {
                Packet::Tnt { bits, count } => return self.branches(bits, count),
                Packet::Tip(ip) => return Ok(Event::Target { ip: self.resolve(ip) }),
                Packet::TipPgd(ip) => return Ok(Event::Disable { ip: self.resolve(ip) }),
                Packet::TipPge(ip) => return Ok(Event::Enable { ip: self.resolve(ip) }),
                Packet::Pad => {}
                Packet::Tsc(_) | Packet::Tma { .. } | Packet::Mtc(_) | Packet::Cyc(_) if !self.busy => {}
                packet => return self.grouped(Some(packet)),
            }
        }
    }

    #[inline(always)]
    fn branches(&mut self, bits: u64, count: u8) -> Result<Event, Fault> {
        if self.count != 0 {
            return Err(self.unexpected("TNT"));
        }
        self.bits = bits;
        self.count = count.into();
        // TNT packets one behind the other are as one.
        while self.count <= u64::BITS - 6 && self.reader.offset() < self.alone_from {
            let Some((bits, count)) = self.reader.read_short_tnt() else { break };
            self.packets += 1;
            self.bits = self.bits << count | bits;
            self.count += u32::from(count);
        }
        self.tnt_bits += u64::from(self.count);
        Ok(Event::Branches)
    }

    /// The next event, where packets come in groups or wait for others; `packet` is the one just read.
    #[inline(never)]
    fn grouped(&mut self, packet: Option<Packet>) -> Result<Event, Fault> {
        let event = self.group(packet);
        self.busy = !self.queue.is_empty() || self.system.waits() || self.system.mode.is_some();
        event
    }

    fn group(&mut self, mut first: Option<Packet>) -> Result<Event, Fault> {
        loop {
            if first.is_none() {
                if !self.queue.is_empty() {
                    return Ok(self.queued());
                }
                self.offset = self.reader.offset();
                self.last_offset = self.offset;
            }
            let packet = match first.take() {
                Some(packet) => packet,
                None => match self.packet()? {
                    Some(packet) => packet,
                    None => return Ok(self.settled(Event::End)),
                },
            };
            match packet {
                Packet::Tnt { bits, count } => return self.branches(bits, count),
                Packet::Tip(ip) => {
                    let ip = self.resolve(ip);
                    return Ok(self.with_branch(Event::Target { ip }));
                }
                Packet::TipPgd(ip) => {
                    let ip = self.resolve(ip);
                    return Ok(self.with_branch(Event::Disable { ip }));
                }
                Packet::TipPge(ip) => {
                    let ip = self.resolve(ip);
                    return Ok(self.settled(Event::Enable { ip }));
                }
                Packet::Fup(ip) => {
                    let Some(at) = self.resolve(ip) else { return Err(self.unexpected("FUP without IP")) };
                    return self.fup(at);
                }
                Packet::Psb => {
                    let event = self.psb_plus(self.offset)?;
                    self.passed_psb = Some(self.offset);
                    return Ok(event);
                }
                Packet::Ovf => return self.overflow(),
                Packet::Psbend => return Err(self.unexpected("PSBEND")),
                // For the packet behind those that only tell of something.
                Packet::ModeExec { mode, interrupt_flag } => self.system.mode = Some((mode, interrupt_flag)),
                Packet::Pip { cr3, non_root } => self.tell(NoticeKind::Paging { cr3, non_root }, Place::Cr3),
                Packet::Vmcs(base) => self.tell(NoticeKind::Vmcs { base }, Place::Vmcs),
                packet => {
                    if !self.system.take(&packet) {
                        return Err(self.unexpected(packet.name()));
                    }
                    self.tell_ready();
                }
            }
        }
    }

    fn tell_ready(&mut self) {
        for placed in std::mem::take(&mut self.system.ready) {
            self.note_in_queue(placed);
        }
    }

    fn queued(&mut self) -> Event {
        let Some((event, mode)) = self.queue.pop_front() else { return Event::End };
        self.mode = mode;
        if event == Event::Note {
            self.note = self.notes.pop_front();
        }
        event
    }

    fn tell(&mut self, kind: NoticeKind, place: Place) {
        self.note_in_queue(Placed::new(kind, place));
    }

    fn note_in_queue(&mut self, placed: Placed) {
        self.notes.push_back(placed);
        self.queue.push_back((Event::Note, None));
    }

    /// `event`, behind whatever waits for an address that does not come.
    fn settled(&mut self, event: Event) -> Event {
        let mode = self.system.mode.take();
        if self.system.waits() {
            self.system.settle();
            self.tell_ready();
        }
        self.queue.push_back((event, mode));
        self.queued()
    }

    /// The event of a branch, behind what happened with it.
    fn with_branch(&mut self, event: Event) -> Event {
        if self.system.waits() {
            self.system.settle();
            for placed in std::mem::take(&mut self.system.ready) {
                self.note_in_queue(Placed { place: Place::Branch, ..placed });
            }
        }
        let mode = self.system.mode.take();
        if self.queue.is_empty() {
            self.mode = mode;
            return event;
        }
        self.queue.push_back((event, mode));
        self.queued()
    }

    /// A FUP: for what waits for one, or with the TIP that belongs to it.
    fn fup(&mut self, at: u64) -> Result<Event, Fault> {
        if let Some((mode, interrupt_flag)) = self.system.mode.take() {
            self.tell(NoticeKind::ExecutionMode(mode), Place::Before(at));
            self.tell(NoticeKind::InterruptFlag(interrupt_flag), Place::Before(at));
            return Ok(self.queued());
        }
        let alone = self.system.alone();
        let paired = self.system.paired() && self.tip_ahead();
        self.system.bind(at);
        self.tell_ready();
        if alone && !paired {
            return Ok(self.queued());
        }
        self.pair(at)
    }

    /// Whether a TIP or TIP.PGD is next.
    fn tip_ahead(&self) -> bool {
        let mut ahead = self.reader.clone();
        while let Ok(Some(packet)) = ahead.read() {
            match packet {
                Packet::Tip(_) | Packet::TipPgd(_) => return true,
                Packet::ModeExec { .. } => {}
                _ if passive(&packet) => {}
                _ => return false,
            }
        }
        false
    }

    /// FUP with the TIP or TIP.PGD that belongs to it.
    fn pair(&mut self, at: u64) -> Result<Event, Fault> {
        let (mut mode, mut paging, mut vmcs) = (None, None, None);
        let event = loop {
            self.last_offset = self.reader.offset();
            match self.packet()? {
                Some(Packet::Tip(ip)) => break Event::AsyncBranch { from: at, to: self.resolve(ip) },
                Some(Packet::TipPgd(ip)) => break Event::AsyncDisable { at, ip: self.resolve(ip) },
                // A stream may end between the two: the flow is known up to here.
                None => break Event::AsyncDisable { at, ip: None },
                Some(Packet::ModeExec { mode: size, interrupt_flag }) => mode = Some((size, interrupt_flag)),
                Some(Packet::Pip { cr3, non_root }) => paging = Some(NoticeKind::Paging { cr3, non_root }),
                Some(Packet::Vmcs(base)) => vmcs = Some(NoticeKind::Vmcs { base }),
                Some(packet) if passive(&packet) => self.in_passing(&packet),
                Some(packet) => {
                    let reason = Reason::UnexpectedPacket(packet.name());
                    return Err(Fault { offset: self.last_offset, reason });
                }
            }
        };
        self.queue.push_back((event, mode));
        for kind in [vmcs, paging].into_iter().flatten() {
            self.tell(kind, Place::Here);
        }
        Ok(self.queued())
    }

    /// Tells of a passive packet.
    fn in_passing(&mut self, packet: &Packet) {
        if self.system.take(packet) {
            self.tell_ready();
        }
    }

    /// Behind OVF: a FUP when tracing is enabled, anything else when it is not.
    fn overflow(&mut self) -> Result<Event, Fault> {
        (self.bits, self.count) = (0, 0);
        self.system.settle_for_overflow();
        self.tell_ready();
        self.system.mode = None;
        match self.behind_overflow()? {
            Behind::Enabled => {}
            Behind::Disabled => {
                self.queue.push_back((Event::Overflow { ip: None }, None));
                return Ok(self.queued());
            }
            Behind::Needless(end) => {
                while self.reader.offset() < end {
                    let Some(packet) = self.packet()? else { break };
                    if let Packet::TipPgd(ip) | Packet::Fup(ip) = packet {
                        self.resolve(ip);
                    }
                }
                self.queue.push_back((Event::Overflow { ip: None }, None));
                return Ok(self.queued());
            }
        }
        let (mut mode, mut transaction) = (None, None);
        loop {
            self.last_offset = self.reader.offset();
            match self.packet()? {
                Some(Packet::Fup(ip) | Packet::Tip(ip)) => {
                    let ip = self.resolve(ip);
                    self.queue.push_back((Event::Overflow { ip }, mode));
                    if let (Some(kind), Some(ip)) = (transaction, ip) {
                        self.tell(kind, Place::Before(ip));
                    }
                    return Ok(self.queued());
                }
                Some(Packet::ModeExec { mode: size, interrupt_flag }) => mode = Some((size, interrupt_flag)),
                Some(Packet::ModeTsx { in_transaction: active, aborted }) => {
                    transaction = Some(NoticeKind::Transaction { active, aborted });
                }
                Some(Packet::Pip { cr3, non_root }) => self.tell(NoticeKind::Paging { cr3, non_root }, Place::Here),
                Some(Packet::Vmcs(base)) => self.tell(NoticeKind::Vmcs { base }, Place::Here),
                Some(packet) => self.in_passing(&packet),
                None => return Ok(Event::End),
            }
        }
    }

    /// Looks at what follows OVF.
    fn behind_overflow(&self) -> Result<Behind, Fault> {
        let errata = self.config.errata;
        let mut ahead = self.reader.clone();
        loop {
            let Some(packet) = ahead.read()? else { return Ok(Behind::Disabled) };
            match packet {
                Packet::Fup(_) => {
                    let needless = errata.apl12 && disabled_at(ahead.clone());
                    return Ok(if needless { Behind::Needless(ahead.offset()) } else { Behind::Enabled });
                }
                Packet::Tip(_) if errata.skd010 => return Ok(Behind::Enabled),
                Packet::TipPgd(_) if errata.skd010 || errata.apl11 => return Ok(Behind::Needless(ahead.offset())),
                Packet::ModeExec { .. } | Packet::ModeTsx { .. } | Packet::Ovf => {}
                _ if passive(&packet) => {}
                _ => return Ok(Behind::Disabled),
            }
        }
    }

    /// The packets from behind PSB to PSBEND.
    fn psb_plus(&mut self, psb: usize) -> Result<Event, Fault> {
        self.last_ip = 0;
        let (mut enabled_at, mut mode) = (None, None);
        self.system.settle();
        self.tell_ready();
        self.system.mode = None;
        loop {
            self.last_offset = self.reader.offset();
            let Some(packet) = self.packet()? else {
                return Err(Fault { offset: psb, reason: Reason::TruncatedPacket });
            };
            let kind = match packet {
                Packet::Psbend => break,
                Packet::Fup(ip) => {
                    enabled_at = self.resolve(ip);
                    continue;
                }
                Packet::ModeExec { mode: size, interrupt_flag } => {
                    mode = Some((size, interrupt_flag));
                    continue;
                }
                Packet::Ovf => {
                    self.offset = self.last_offset;
                    return self.overflow();
                }
                Packet::ModeTsx { in_transaction: active, aborted } => NoticeKind::Transaction { active, aborted },
                Packet::Pip { cr3, non_root } => NoticeKind::Paging { cr3, non_root },
                Packet::Vmcs(base) => NoticeKind::Vmcs { base },
                Packet::Cbr { ratio } => NoticeKind::CoreBusRatio(ratio),
                Packet::Mnt(payload) => {
                    self.tell(NoticeKind::Maintenance(payload), Place::Here);
                    continue;
                }
                Packet::Psb => continue,
                _ if passive(&packet) => continue,
                _ => {
                    let reason = Reason::UnexpectedPacket(packet.name());
                    return Err(Fault { offset: self.last_offset, reason });
                }
            };
            self.note_in_queue(Placed::status(kind));
        }
        if self.config.errata.bdm70 && enabled_at.is_some() && disabled_at(self.reader.clone()) {
            enabled_at = None;
        }
        self.queue.push_back((Event::Status { ip: enabled_at }, mode));
        Ok(self.queued())
    }

    /// Takes in the time that a packet tells. When that makes news, there is a note.
    #[inline(always)]
    pub fn take_time(&mut self, packet: &Packet) {
        if self.time.take(packet) {
            if let Some(ticks) = self.time.uncertainty_news() {
                self.tell(NoticeKind::Uncertainty(ticks), Place::Here);
                self.busy = true;
            }
        }
    }

    /// The next packet, its time taken in.
    #[inline(always)]
    fn packet(&mut self) -> Result<Option<Packet>, Fault> {
        let Some(packet) = self.reader.read()? else { return Ok(None) };
        self.packets += 1;
        self.take_time(&packet);
        match packet {
            Packet::Psb => {
                self.before_psb = (self.packets - 1, self.psb, self.ovf);
                self.psb += 1;
            }
            Packet::Ovf => self.ovf += 1,
            _ => {}
        }
        Ok(Some(packet))
    }

    #[inline(always)]
    fn resolve(&mut self, ip: Ip) -> Option<u64> {
        let ip = ip.resolve(self.last_ip)?;
        self.last_ip = ip;
        Some(ip)
    }

    #[cold]
    fn unexpected(&self, name: &'static str) -> Fault {
        Fault { offset: self.offset, reason: Reason::UnexpectedPacket(name) }
    }
}

/// What the packets behind OVF say.
enum Behind {
    Enabled,
    Disabled,
    /// Disabled, and the packets up to the offset should not be there.
    Needless(usize),
}

/// Whether tracing is disabled where `ahead` stands: it is enabled next, or a PSB+ without address follows.
fn disabled_at(mut ahead: Reader<'_>) -> bool {
    let mut status = false;
    while let Ok(Some(packet)) = ahead.read() {
        match packet {
            Packet::TipPge(_) => return true,
            Packet::Psb => status = true,
            Packet::Psbend if status => return true,
            Packet::ModeExec { .. } | Packet::ModeTsx { .. } => {}
            _ if passive(&packet) => {}
            _ => return false,
        }
    }
    false
}

/// Packets that may stand between the parts of one event.
pub fn passive(packet: &Packet) -> bool {
    matches!(
        packet,
        Packet::Pad
            | Packet::Cbr { .. }
            | Packet::Tsc(_)
            | Packet::Tma { .. }
            | Packet::Mtc(_)
            | Packet::Cyc(_)
            | Packet::Pip { .. }
            | Packet::Vmcs(_)
            | Packet::Mnt(_)
            | Packet::Pwre { .. }
            | Packet::Pwrx { .. }
            | Packet::Evd { .. }
            | Packet::Bip { .. }
            | Packet::Bbp { .. }
            | Packet::Invalid
    )
}
