//! What a stream says about when and why the thread may have changed.

use crate::ticks::{Reckoned, Ticks};
use pt_flow::Config;
use pt_packet::{Ip, Packet, Reader};

/// A stretch in which nothing was traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Where it begins: behind the packet that said so.
    pub offset: usize,
    /// The time that was known there, TSC ticks.
    pub known: u64,
    /// When it was over, where that is known at once: a PSB says that tracing goes on and what time it is.
    pub over: Option<u64>,
    /// By core cycles.
    begins: Option<Reckoned>,
    ends: Option<Reckoned>,
    stopped_at: Option<u64>,
    resumed_at: Option<u64>,
}

impl Gap {
    /// How much it looks like a change of threads: a thread that was interrupted goes on where it was.
    pub fn worth(&self) -> u8 {
        match (self.stopped_at, self.resumed_at) {
            (Some(stopped), Some(resumed)) if stopped == resumed => 0,
            (Some(_), Some(_)) => 2,
            _ => 1,
        }
    }

    /// Whether core cycles allow that it lasted from one time to another.
    pub fn may_hold(&self, from: u64, to: u64) -> bool {
        let begun = self.begins.is_none_or(|begins| begins.earliest() <= from);
        let ended = self.ends.is_some_and(|ends| ends.latest() < to);
        let short = self.begins.zip(self.ends).is_some_and(|(begins, ends)| begins.at_most_to(ends) < to - from);
        begun && !ended && !short
    }

    /// How far its begin is from a time, by core cycles.
    pub fn ticks_from(&self, tsc: u64) -> Option<u64> {
        self.begins.map(|begins| begins.tsc.abs_diff(tsc))
    }
}

/// Packets up to where tracing goes on are looked at up to this many.
const MAX_AHEAD: usize = 64;

/// What a [`Scan`] comes by, in the order of the stream; offsets in bytes, times in TSC ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    Tick {
        offset: usize,
        tsc: u64,
    },
    /// A gap that is over.
    Gap(Gap),
    Pip {
        offset: usize,
        cr3: u64,
        /// Nothing was written: a PSB says how things stand.
        status: bool,
    },
}

/// Reads the packets of a stream for their times, gaps and address spaces.
pub struct Scan<'d> {
    data: &'d [u8],
    /// Where packets are missing further on; up to the first of them there is something to read.
    missing: &'d [usize],
    reader: Reader<'d>,
    ticks: Ticks,
    last_ip: u64,
    /// The address of a FUP that the next packet completes.
    fup: Option<u64>,
    open: Option<Gap>,
    psb_plus: bool,
    /// The PSB that is being read says that tracing is on.
    enabled: bool,
    overflow: bool,
}

impl<'d> Scan<'d> {
    /// `missing`: offsets in front of which packets are missing, in order.
    pub fn new(data: &'d [u8], missing: &'d [usize], config: &Config) -> Self {
        let mut scan = Scan {
            data,
            missing,
            reader: Reader::with_errata(up_to(data, missing), config.errata),
            ticks: Ticks::new(config),
            last_ip: 0,
            fup: None,
            open: None,
            psb_plus: false,
            enabled: false,
            overflow: false,
        };
        scan.synchronize(0);
        scan
    }

    /// Where the next packet begins.
    pub fn offset(&self) -> usize {
        self.reader.offset()
    }

    pub fn begin_of_open_gap(&self) -> Option<usize> {
        self.open.map(|gap| gap.offset)
    }

    /// The gap in which the stream is now, with what the packets ahead say of its end.
    pub fn open_gap(&self) -> Option<Gap> {
        let gap = self.open?;
        let (mut reader, mut last_ip) = (self.reader.clone(), self.last_ip);
        for _ in 0..MAX_AHEAD {
            match reader.read() {
                Ok(Some(Packet::Psb)) => last_ip = 0,
                Ok(Some(Packet::TipPge(ip))) => return Some(Gap { resumed_at: ip.resolve(last_ip), ..gap }),
                Ok(Some(Packet::Fup(_) | Packet::Ovf) | None) | Err(_) => break,
                Ok(Some(_)) => {}
            }
        }
        Some(gap)
    }

    /// Goes on behind the next place at which packets are missing. False where there is none.
    fn pass_missing(&mut self) -> bool {
        let Some((&at, further)) = self.missing.split_first() else { return false };
        self.missing = further;
        self.reader.go_on_in(up_to(self.data, further), at);
        self.open = None;
        self.synchronize(at);
        true
    }

    fn synchronize(&mut self, from: usize) {
        self.reader.seek(from);
        let offset = self.reader.synchronize().unwrap_or(self.reader.data().len());
        self.ticks.forget();
        (self.psb_plus, self.overflow, self.fup) = (false, false, None);
        self.stop(offset, None);
    }

    fn stop(&mut self, offset: usize, stopped_at: Option<u64>) {
        if self.open.is_none() {
            let (known, begins) = (self.ticks.now(), self.ticks.reckoned());
            self.open = Some(Gap { offset, known, over: None, begins, ends: None, stopped_at, resumed_at: None });
        }
    }

    fn go(&mut self, resumed_at: Option<u64>) -> Option<Seen> {
        let ends = self.ticks.reckoned();
        self.open.take().map(|gap| Seen::Gap(Gap { ends, resumed_at, ..gap }))
    }

    fn resolve(&mut self, ip: Ip) -> Option<u64> {
        let ip = ip.resolve(self.last_ip)?;
        self.last_ip = ip;
        Some(ip)
    }

    fn take(&mut self, offset: usize, packet: Packet) -> Option<Seen> {
        let fup = match packet {
            // These may stand between a FUP and what it belongs to.
            Packet::Pad | Packet::Mtc(_) | Packet::Cyc(_) | Packet::Tsc(_) | Packet::Tma { .. } => self.fup,
            Packet::Cbr { .. } | Packet::ModeExec { .. } | Packet::ModeTsx { .. } => self.fup,
            _ => self.fup.take(),
        };
        match packet {
            Packet::Psb => {
                self.ticks.psb(self.reader.data(), self.reader.offset());
                self.last_ip = 0;
                (self.psb_plus, self.enabled) = (true, false);
                None
            }
            Packet::Psbend => {
                self.ticks.take(&packet);
                self.psb_plus = false;
                if !std::mem::take(&mut self.enabled) {
                    return None;
                }
                let over = Some(self.ticks.now());
                self.open.take().map(|gap| Seen::Gap(Gap { over, ..gap }))
            }
            Packet::Ovf => {
                self.ticks.forget();
                (self.psb_plus, self.overflow) = (false, true);
                self.stop(self.reader.offset(), None);
                None
            }
            Packet::Fup(ip) => {
                let ip = self.resolve(ip);
                if self.psb_plus {
                    self.enabled = true;
                    return None;
                }
                if self.overflow {
                    self.overflow = false;
                    return self.go(None);
                }
                self.fup = ip;
                None
            }
            Packet::Tip(ip) => {
                self.resolve(ip);
                self.go(None)
            }
            Packet::TipPge(ip) => {
                let ip = self.resolve(ip);
                self.overflow = false;
                self.go(ip)
            }
            Packet::TipPgd(ip) => {
                self.resolve(ip);
                self.stop(self.reader.offset(), fup);
                None
            }
            Packet::Pip { cr3, .. } => {
                self.ticks.take(&packet);
                Some(Seen::Pip { offset, cr3, status: self.psb_plus })
            }
            Packet::Tsc(packet) if self.ticks.is_contradicted(packet, &self.reader) => {
                self.ticks.forget();
                None
            }
            Packet::Tsc(_) | Packet::Mtc(_) | Packet::Tma { .. } | Packet::Cbr { .. } | Packet::Cyc(_) => {
                self.ticks.take(&packet).map(|tsc| Seen::Tick { offset, tsc })
            }
            _ => None,
        }
    }
}

/// The stream up to where packets are missing first.
fn up_to<'d>(data: &'d [u8], missing: &[usize]) -> &'d [u8] {
    missing.first().and_then(|&at| data.get(..at)).unwrap_or(data)
}

impl Iterator for Scan<'_> {
    type Item = Seen;

    fn next(&mut self) -> Option<Seen> {
        loop {
            match self.reader.read_behind_pads() {
                Ok(Some((offset, packet))) => {
                    if let Some(seen) = self.take(offset, packet) {
                        return Some(seen);
                    }
                }
                Ok(None) if self.pass_missing() => {}
                Ok(None) => return None,
                Err(error) => {
                    self.open = None;
                    self.synchronize(error.offset + 1);
                }
            }
        }
    }
}
