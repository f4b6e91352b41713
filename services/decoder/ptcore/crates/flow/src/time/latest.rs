//! How late it can be, by the PSBs ahead.
//!
//! Times never go back: where a damaged packet sets the clock ahead, it would stand still until true times get there. Each
//! PSB+ has a TSC (SDM section "Packet Stream Boundary (PSB) Packet"), and no time in front of it is later.

use super::uncertainty::Calm;
use super::world::psb_plus;
use super::{Anchor, Time};
use crate::calibration::FASTER;
use crate::{whole_tsc, Config};
use memchr::memmem;
use pt_packet::{Packet, Reader, PSB};
use std::ops::Range;

/// PSBs that are looked at for two with a time.
const MOST_PSBS: usize = 4;

/// How far ahead they are looked for. Processors write one every 64 MiB of packets at least (SDM, IA32_RTIT_CTL.PSBFreq):
/// where none is as near as so many, as in front of gigabytes of PADs, none tells anything.
const FAR: usize = MOST_PSBS << 26;

/// Cycles that no CYC of up to three bytes has, and ticks that cycles may come to beyond the next TSC: the ratio of the clocks
/// varies.
pub const SLACK: u64 = 1 << 19;

/// Cycles that no CYC of up to two bytes has.
const MANY: u64 = 1 << 12;

/// What the next PSBs say of the time, and the next MTC.
#[derive(Clone, Debug)]
pub struct Latest {
    config: Config,
    /// Of all PSBs, of those where the host runs, and of those where a guest does.
    ahead: [Ahead; 3],
    /// From offsets in the range on, the payload of the next MTC, if no other packet starts or breaks its count before.
    behind: Range<usize>,
    mtc: Option<u8>,
}

/// What the next PSBs say; known for these offsets, of which the last one is that of the next PSB.
#[derive(Clone, Copy, Debug)]
struct Ahead {
    from: usize,
    psb: usize,
    ticks: u64,
    /// No PSB begins in front of this offset.
    clear: usize,
}

impl Latest {
    pub fn new(config: Config) -> Self {
        Latest { config, ahead: [Ahead { from: 1, psb: 0, ticks: u64::MAX, clear: 0 }; 3], behind: 0..0, mtc: None }
    }

    /// The later one of the next two times that PSBs from the offset on tell, as one of the two may be damaged; else that of
    /// the only one. With `non_root` only those where a guest runs count, or only those where the host does.
    pub fn at(&mut self, data: &[u8], offset: usize, non_root: Option<bool>) -> u64 {
        let which = non_root.map_or(0, |non_root| 1 + usize::from(non_root));
        let Ahead { from, psb, ticks, clear } = self.ahead[which];
        if (from..=psb).contains(&offset) {
            return ticks;
        }
        let looked = if (from..clear).contains(&offset) { clear } else { offset };
        let until = offset.saturating_add(FAR).min(data.len());
        let Some(psb) = memmem::find(&data[looked..until], &PSB).map(|psb| looked + psb) else {
            let clear = looked.max((until + 1).saturating_sub(PSB.len()));
            let psb = if until == data.len() { usize::MAX } else { offset };
            self.ahead[which] = Ahead { from: offset, psb, ticks: u64::MAX, clear };
            return u64::MAX;
        };
        let psbs = memmem::find_iter(&data[psb..psb.saturating_add(FAR).min(data.len())], &PSB).take(MOST_PSBS);
        let told = psbs.filter_map(|at| self.tsc(data, psb + at + PSB.len(), non_root));
        let ticks = told.take(2).max().unwrap_or(u64::MAX);
        self.ahead[which] = Ahead { from: offset, psb, ticks, clear: psb };
        ticks
    }

    /// The payload of the next MTC. Looked for once, however many packets are in front of it.
    fn mtc(&mut self, data: &[u8], offset: usize) -> Option<u8> {
        if !self.behind.contains(&offset) {
            let mut ahead = Reader::with_errata(data, self.config.errata);
            ahead.seek(offset);
            let packets = std::iter::from_fn(|| ahead.read_behind_pads().ok().flatten());
            let next = packets.map(|(_, packet)| packet).find(|packet| {
                matches!(packet, Packet::Mtc(_) | Packet::Tsc(_) | Packet::Tma { .. } | Packet::Psb | Packet::Ovf)
            });
            self.mtc = if let Some(Packet::Mtc(payload)) = next { Some(payload) } else { None };
            self.behind = offset..ahead.offset();
        }
        self.mtc
    }

    fn tsc(&self, data: &[u8], behind_psb: usize, whose: Option<bool>) -> Option<u64> {
        let mut told = None;
        for packet in psb_plus(data, behind_psb, self.config.errata) {
            match packet {
                Packet::Tsc(ticks) => {
                    told = Some(whole_tsc(ticks, self.config.reference_tsc));
                    if whose.is_none() {
                        break;
                    }
                }
                Packet::Pip { non_root, .. } if whose.is_some_and(|wanted| wanted != non_root) => return None,
                _ => {}
            }
        }
        told
    }
}

impl Time {
    /// Takes in a packet that ends at the offset, but none that leads beyond the next PSBs: nobody knows then how far true
    /// times are off, until a TSC says the time. True for one that may move the time, or the uncertainty.
    #[inline(always)]
    pub(crate) fn take_before(&mut self, packet: &Packet, data: &[u8], offset: usize, latest: &mut Latest) -> bool {
        match self.leads_far(packet) {
            Some(ticks) if self.is_too_late(ticks, packet, data, offset, latest) => {
                self.doubt(packet);
                true
            }
            _ => self.take(packet),
        }
    }

    #[inline(never)]
    fn is_too_late(&self, ticks: u64, packet: &Packet, data: &[u8], offset: usize, latest: &mut Latest) -> bool {
        let ticks = match *packet {
            Packet::Cyc(cycles) if self.outruns_mtcs(cycles, data, offset, latest) => return true,
            Packet::Cyc(cycles) => match self.cycles_lead_far(cycles) {
                Some(ticks) => ticks,
                None => return false,
            },
            _ => ticks,
        };
        if !self.world.guests() && ticks <= latest.at(data, offset, None) {
            return false;
        }
        // A guest's TSC is no time where the host's turns out to be earlier.
        let alone = self.world.guest_alone();
        let late = ticks > latest.at(data, offset, Some(self.world.of(packet)));
        late || alone && ticks > latest.at(data, offset, Some(false))
    }

    /// The earliest time that a packet may stand for, when it leads further than the next one in its turn would; of a CYC the
    /// cycles that may.
    #[inline(always)]
    fn leads_far(&self, packet: &Packet) -> Option<u64> {
        match *packet {
            Packet::Tsc(ticks) => self.tsc_leads_far(ticks),
            Packet::Cyc(cycles) if cycles >= MANY || self.fast >= SLACK => Some(cycles),
            Packet::Mtc(payload) => self.mtc_leads_far(payload),
            _ => None,
        }
        .filter(|_| !self.of_libipt)
    }

    fn tsc_leads_far(&self, ticks: u64) -> Option<u64> {
        let ticks = Some(whole_tsc(ticks, self.reference_tsc)).filter(|_| !self.is_foreign())?;
        (ticks > self.estimate.saturating_add(self.period.unwrap_or(0))).then_some(ticks)
    }

    fn cycles_lead_far(&self, cycles: u64) -> Option<u64> {
        let far = cycles >= SLACK || self.fast >= SLACK;
        let rate = self.calibration.rate().filter(|_| far && self.anchor >= Anchor::Tsc)?;
        let ticks = self.base.saturating_add(self.fast).saturating_add(rate.ticks(cycles));
        ticks.checked_sub(SLACK)
    }

    /// Whether they lead far beyond the next MTC. Behind an overflow or a TSC some may be missing.
    #[cold]
    fn outruns_mtcs(&self, cycles: u64, data: &[u8], offset: usize, latest: &mut Latest) -> bool {
        let known = self.period.zip(self.calibration.rate()).filter(|_| self.anchor == Anchor::Count);
        let Some((period, rate)) = known.filter(|_| self.calibration.has_mtc()) else { return false };
        let over =
            if self.fast == 0 { self.crystal.in_tsc(self.uncounted, 0).map_or(0, |(ticks, _)| ticks) } else { 0 };
        let far = period.saturating_mul(FASTER);
        let ticks = self.fast.saturating_add(rate.ticks(cycles)).saturating_sub(over);
        if ticks <= far {
            return false;
        }
        let Some(payload) = latest.mtc(data, offset) else { return false };
        let counts = self.crystal.since(self.crystal.at_mtc(payload), self.count);
        self.crystal.in_tsc(counts, 0).is_some_and(|(until, _)| ticks > until.saturating_add(far))
    }

    #[inline(always)]
    fn mtc_leads_far(&self, payload: u8) -> Option<u64> {
        let counts = self.crystal.since(self.crystal.at_mtc(payload), self.count);
        if counts <= self.crystal.period() || self.anchor != Anchor::Count {
            return None;
        }
        let (ticks, _) = self.crystal.in_tsc(counts - self.crystal.period(), 0)?;
        Some(self.base.saturating_add(ticks))
    }

    /// The packet is not taken in.
    #[cold]
    fn doubt(&mut self, packet: &Packet) {
        (self.doubtful, self.calm) = (true, Calm::default());
        match packet {
            Packet::Cyc(_) => {
                self.lost_cycles = true;
                self.calibration.overflow(false);
            }
            Packet::Tsc(_) if !self.in_psb => self.calibration.overflow(false),
            // The one before may be what is damaged, and with it the rate.
            Packet::Mtc(_) => self.calibration.distrust(),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pt_packet::writer::write;

    #[test]
    fn a_time_is_held_against_psbs_that_may_be_the_next_ones_whatever_was_asked_before() {
        let (near, next) = (FAR + 100, FAR + 5000);
        let mut data = vec![0; next + 5000];
        for (at, ticks) in [(near, 7), (next, 9)] {
            let mut psb_plus = Vec::new();
            [Packet::Psb, Packet::Tsc(ticks), Packet::Psbend].into_iter().for_each(|one| write(&mut psb_plus, one));
            data[at..at + psb_plus.len()].copy_from_slice(&psb_plus);
        }
        let new = || Latest::new(Config::default());
        let mut asked = new();
        let whole = near + PSB.len() - FAR;
        let expected = [
            (0, u64::MAX),
            (whole - 1, u64::MAX),
            (whole, 9),
            (near, 9),
            (near + 1, 9),
            (next, 9),
            (next + 1, u64::MAX),
            (data.len(), u64::MAX),
        ];
        for (offset, ticks) in expected {
            assert_eq!((asked.at(&data, offset, None), new().at(&data, offset, None)), (ticks, ticks), "from {offset}");
        }
        asked.at(&data, 0, None);
        // From there on it is searched when the next offset is asked for.
        assert_eq!(asked.ahead[0].clear, FAR + 1 - PSB.len());
    }
}
