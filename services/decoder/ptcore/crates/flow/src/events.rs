//! Packets to events.

mod fup;
mod group;
mod lookahead;
mod overflow;
mod psb_plus;
mod queue;

use crate::config::Config;
use crate::event::{Event, Fault, Mode};
use crate::notice::{NoticeKind, Place, Placed};
use crate::system::System;
use crate::time::{Latest, Pace, Time};
use crate::Reason;
use pt_packet::{Ip, Packet, Reader, PSB};
pub use queue::MOST_NOTES;
use std::collections::VecDeque;

pub struct Events<'a> {
    config: Config,
    /// The stream, of which the reader reads what stands in front of missing packets. Later times are true behind them as well.
    pub whole: &'a [u8],
    pub reader: Reader<'a>,
    pub last_ip: u64,
    pub time: Time,
    latest: Latest,
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
    /// The address in place of that of the next FUP, which is of a copy of the instruction there.
    pub copied: Option<u64>,
    /// What a `Note` event tells.
    pub note: Option<Placed>,
    /// Events that came with one packet, each with its mode, and the notes of those that are `Note`.
    queue: VecDeque<(Event, Option<Mode>)>,
    notes: VecDeque<Placed>,
    system: System,
    /// Something is queued or waits for another packet.
    pub busy: bool,
    pub packets: u64,
    pub tnt_bits: u64,
    /// Each once, however often it is read, and where the last of them ends.
    pub psb: u64,
    psb_end: usize,
    pub ovf: u64,
    /// The counts of packets, PSBs and overflows in front of the last PSB.
    pub before_psb: (u64, u64, u64),
    /// Where that stands, unless nobody goes on from there, and the time in front of it.
    pub psb_at: usize,
    pub time_before_psb: Time,
    /// The last PSB that stood within the PSB+ of another one.
    pub endless_psb: usize,
    /// What the packets behind the last OVF say.
    overflow: overflow::Told,
    /// What stands behind the last PSB+, until a FUP was seen there.
    behind_psb: overflow::BehindPsb,
    /// The PSB whose PSB+ is being read.
    within_psb: Option<usize>,
}

impl<'a> Events<'a> {
    pub fn new(data: &'a [u8], config: Config) -> Self {
        Events {
            config,
            whole: data,
            reader: Reader::with_errata(data, config.errata),
            last_ip: 0,
            time: Time::new(config),
            latest: Latest::new(config),
            bits: 0,
            count: 0,
            offset: 0,
            last_offset: 0,
            passed_psb: None,
            mode: None,
            copied: None,
            note: None,
            queue: VecDeque::new(),
            notes: VecDeque::new(),
            system: System::default(),
            busy: false,
            packets: 0,
            tnt_bits: 0,
            psb: 0,
            psb_end: 0,
            ovf: 0,
            before_psb: (0, 0, 0),
            psb_at: usize::MAX,
            time_before_psb: Time::new(config),
            endless_psb: 0,
            overflow: overflow::Told::default(),
            behind_psb: overflow::BehindPsb::default(),
            within_psb: None,
        }
    }

    /// Where reading would go on.
    pub fn position(&self) -> usize {
        self.reader.offset()
    }

    /// Goes on at `offset`, in front of which packets are missing, and up to where more of them are.
    pub fn go_on_behind(&mut self, offset: usize, end: usize) {
        self.reader.go_on_in(&self.whole[..end], offset);
        self.time.miss_packets();
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
        (self.bits, self.count) = (bits, count.into());
        self.tnt_bits += u64::from(self.count);
        Ok(Event::Branches)
    }

    /// Takes in the time that a packet tells, which ends at the offset. When that makes news, there is a note.
    #[inline(always)]
    fn take_time(&mut self, packet: &Packet, end: usize) {
        if self.time.take_before(packet, self.whole, end, &mut self.latest) {
            if let Some(ticks) = self.time.uncertainty_news() {
                self.tell(NoticeKind::Uncertainty(ticks), Place::Here);
                self.busy = true;
            }
        }
    }

    /// The same where the time goes on at a pace; whether there is a note.
    #[inline(never)]
    pub fn take_time_apart(&mut self, pace: &mut Pace, packet: &Packet, end: usize) -> bool {
        self.time.keep(pace);
        self.take_time(packet, end);
        *pace = self.time.pace();
        self.busy
    }

    /// The next packet, its time taken in.
    #[inline(always)]
    fn packet(&mut self) -> Result<Option<Packet>, Fault> {
        let Some(packet) = self.reader.read()? else { return Ok(None) };
        self.packets += 1;
        self.take_time(&packet, self.reader.offset());
        match packet {
            Packet::Psb => {
                let end = self.reader.offset();
                self.psb_at = end - PSB.len();
                if self.psb_at >= self.psb_end {
                    (self.psb, self.psb_end) = (self.psb + 1, end);
                }
                self.before_psb = (self.packets - 1, self.psb - 1, self.ovf);
                self.time_before_psb.clone_from(&self.time);
                self.time.world.at_psb(self.whole, self.reader.offset(), self.config.errata);
            }
            Packet::Ovf => self.ovf += 1,
            Packet::Pad => self.packets += self.reader.skip_pads(usize::MAX) as u64,
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
    fn unexpected(&mut self, name: &'static str) -> Fault {
        self.unexpected_at(self.offset, name)
    }

    /// The packet at `offset` is read again by whoever goes on reading.
    #[cold]
    fn unexpected_at(&mut self, offset: usize, name: &'static str) -> Fault {
        self.reader.seek(offset);
        Fault { offset, reason: Reason::UnexpectedPacket(name) }
    }
}
