//! Packets to events: what a walk along the code has to react to.

use crate::time::{Config, Time};
use crate::Reason;
use pt_packet::{Error, ErrorKind, Execution, Ip, Packet, Reader};

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

pub struct Events<'a> {
    reader: Reader<'a>,
    last_ip: u64,
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
    pub mode: Option<Execution>,
    /// Offset from which on TNT packets are not joined with those before.
    pub alone_from: usize,
    /// The next FUP only says where something happened.
    lone_fup: bool,
    pub packets: u64,
    pub tnt_bits: u64,
    pub psb: u64,
    pub ovf: u64,
}

impl<'a> Events<'a> {
    pub fn new(data: &'a [u8], config: Config) -> Self {
        Events {
            reader: Reader::new(data),
            last_ip: 0,
            time: Time::new(config),
            bits: 0,
            count: 0,
            offset: 0,
            last_offset: 0,
            passed_psb: None,
            mode: None,
            alone_from: usize::MAX,
            lone_fup: false,
            packets: 0,
            tnt_bits: 0,
            psb: 0,
            ovf: 0,
        }
    }

    /// Where reading would go on.
    pub fn position(&self) -> usize {
        self.reader.offset()
    }

    /// Forgets all state and reads the PSB+ at `offset`. The event is a `Status` or an `Overflow`.
    pub fn synchronize(&mut self, offset: usize) -> Result<Event, Fault> {
        self.reader.seek(offset);
        (self.last_ip, self.bits, self.count) = (0, 0, 0);
        (self.mode, self.lone_fup, self.passed_psb) = (None, false, None);
        self.offset = offset;
        self.last_offset = offset;
        match self.packet()? {
            Some(Packet::Psb) => self.psb_plus(offset),
            _ => Err(self.unexpected("no PSB")),
        }
    }

    /// The next event. Branches of a TNT packet must be used up before, unless a target is asked for.
    pub fn next(&mut self) -> Result<Event, Fault> {
        self.mode = None;
        loop {
            self.offset = self.reader.offset();
            self.last_offset = self.offset;
            let Some(packet) = self.packet()? else { return Ok(Event::End) };
            match packet {
                Packet::Tnt { bits, count } => {
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
                    return Ok(Event::Branches);
                }
                Packet::Tip(ip) => return Ok(Event::Target { ip: self.resolve(ip) }),
                Packet::TipPgd(ip) => return Ok(Event::Disable { ip: self.resolve(ip) }),
                Packet::TipPge(ip) => return Ok(Event::Enable { ip: self.resolve(ip) }),
                Packet::Fup(ip) => {
                    let at = self.resolve(ip);
                    if std::mem::take(&mut self.lone_fup) {
                        continue;
                    }
                    return self.pair(at);
                }
                Packet::Psb => {
                    let event = self.psb_plus(self.offset)?;
                    self.passed_psb = Some(self.offset);
                    return Ok(event);
                }
                Packet::Ovf => return self.overflow(),
                Packet::Psbend => return Err(self.unexpected("PSBEND")),
                Packet::ModeExec { mode, .. } => self.mode = Some(mode),
                Packet::ModeTsx { aborted, .. } => self.lone_fup = !aborted,
                Packet::Ptw { fup, .. } | Packet::Exstop { fup } | Packet::Bep { fup } => self.lone_fup |= fup,
                Packet::Mwait { .. } => self.lone_fup = true,
                // Interrupts, SMI, RSM, VM entry and exit have a FUP paired with a TIP; only IRET's stands alone.
                Packet::Cfe { kind, fup, .. } => self.lone_fup |= fup && kind == CFE_IRET,
                _ => {}
            }
        }
    }

    /// FUP with the TIP or TIP.PGD that belongs to it.
    fn pair(&mut self, at: Option<u64>) -> Result<Event, Fault> {
        let Some(at) = at else { return Err(self.unexpected("FUP without IP")) };
        loop {
            self.last_offset = self.reader.offset();
            match self.packet()? {
                Some(Packet::Tip(ip)) => return Ok(Event::AsyncBranch { from: at, to: self.resolve(ip) }),
                Some(Packet::TipPgd(ip)) => return Ok(Event::AsyncDisable { at, ip: self.resolve(ip) }),
                // A stream may end between the two: the flow is known up to here.
                None => return Ok(Event::AsyncDisable { at, ip: None }),
                Some(Packet::ModeExec { mode, .. }) => self.mode = Some(mode),
                Some(packet) if passive(&packet) => {}
                Some(packet) => {
                    return Err(Fault { offset: self.last_offset, reason: Reason::UnexpectedPacket(packet.name()) })
                }
            }
        }
    }

    /// Behind OVF: a FUP when tracing is enabled, anything else when it is not.
    fn overflow(&mut self) -> Result<Event, Fault> {
        (self.bits, self.count, self.lone_fup) = (0, 0, false);
        loop {
            let offset = self.reader.offset();
            let mut ahead = self.reader.clone();
            let Some(packet) = ahead.read()? else { return Ok(Event::Overflow { ip: None }) };
            match packet {
                Packet::Fup(ip) => {
                    self.packet()?;
                    self.last_offset = offset;
                    return Ok(Event::Overflow { ip: self.resolve(ip) });
                }
                Packet::ModeExec { mode, .. } => {
                    self.packet()?;
                    self.mode = Some(mode);
                }
                _ if passive(&packet) || matches!(packet, Packet::Ovf | Packet::ModeTsx { .. }) => {
                    self.packet()?;
                }
                _ => return Ok(Event::Overflow { ip: None }),
            }
        }
    }

    /// The packets from behind PSB to PSBEND.
    fn psb_plus(&mut self, psb: usize) -> Result<Event, Fault> {
        self.last_ip = 0;
        let mut enabled_at = None;
        loop {
            self.last_offset = self.reader.offset();
            let Some(packet) = self.packet()? else {
                return Err(Fault { offset: psb, reason: Reason::TruncatedPacket });
            };
            match packet {
                Packet::Psbend => return Ok(Event::Status { ip: enabled_at }),
                Packet::Fup(ip) => enabled_at = self.resolve(ip),
                Packet::ModeExec { mode, .. } => self.mode = Some(mode),
                Packet::Ovf => return self.overflow(),
                Packet::ModeTsx { .. } | Packet::Psb => {}
                _ if passive(&packet) => {}
                _ => return Err(Fault { offset: self.last_offset, reason: Reason::UnexpectedPacket(packet.name()) }),
            }
        }
    }

    /// The next packet, its time taken in.
    #[inline(always)]
    fn packet(&mut self) -> Result<Option<Packet>, Fault> {
        let Some(packet) = self.reader.read()? else { return Ok(None) };
        self.packets += 1;
        match packet {
            Packet::Tsc(ticks) => self.time.tsc(ticks),
            Packet::Tma { ctc, fast_counter } => self.time.tma(ctc, fast_counter),
            Packet::Mtc(payload) => self.time.mtc(payload),
            Packet::Cyc(cycles) => self.time.cyc(cycles),
            Packet::Cbr { ratio } => self.time.cbr(ratio),
            Packet::Psb => self.psb += 1,
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

/// CFE type "IRET" (SDM table "CFE Packet Type and Vector Fields").
const CFE_IRET: u8 = 2;

/// Packets that may stand between the parts of one event.
fn passive(packet: &Packet) -> bool {
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
    )
}
