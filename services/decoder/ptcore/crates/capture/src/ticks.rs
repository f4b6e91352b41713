//! The times that clock packets give exactly.

use pt_flow::{whole_tsc, Config, World};
use pt_packet::{Errata, Packet, Reader};

/// TSC and MTC packets as TSC ticks; never goes back. (`pt_flow` adds estimates in between.) They are the host's, as those of
/// the operating system are: TSC packets of guests are passed over.
#[derive(Clone)]
pub struct Ticks {
    /// IA32_RTIT_CTL.MTCFreq.
    frequency: u8,
    /// TSC ticks per tick of the crystal clock.
    ratio: (u32, u32),
    reference: u64,
    errata: Errata,
    world: World,
    psb_plus: bool,
    now: u64,
    tsc: Option<u64>,
    crystal: Option<Crystal>,
    /// Core to bus clock ratio at which core cycles and TSC ticks are the same, and that of now; 0 when unknown.
    nominal_ratio: u8,
    core_ratio: u8,
    /// Core cycles since the last time; `None` where no packet counts them.
    cycles: Option<u64>,
}

/// What core cycles say of the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reckoned {
    pub tsc: u64,
    /// Ticks that were reckoned from core cycles, since the last time that a packet told.
    since: u64,
}

impl Reckoned {
    /// CBR tells whole ratios alone, which are at least 4.
    const RIGHT_TO: u64 = 8;

    pub fn earliest(self) -> u64 {
        self.tsc - self.since / Self::RIGHT_TO
    }

    pub fn latest(self) -> u64 {
        self.tsc.saturating_add(self.since / Self::RIGHT_TO)
    }

    /// Ticks from then to another time, at most.
    pub fn at_most_to(self, end: Reckoned) -> u64 {
        let ticks = end.tsc.saturating_sub(self.tsc);
        ticks.saturating_add(ticks / Self::RIGHT_TO)
    }
}

/// SDM section "Tracking Time": TMA ties TSC and crystal clock, MTC carries 8 bits of the latter.
#[derive(Clone)]
struct Crystal {
    tsc: u64,
    /// Bits of the crystal clock below those that MTC carries.
    low: u64,
    last: u8,
    /// Those bits of `last` that are known: a TMA has not all that MTC carries where MTCs are rare.
    known: u8,
    ticks: u64,
}

/// Ticks that a core is seldom idle for, and packets up to the next TSC packet that are looked at where one was.
const FAR: u64 = 1 << 30;
const MAX_TO_TSC: usize = 1 << 16;

impl Ticks {
    pub fn new(config: &Config) -> Self {
        Ticks {
            frequency: config.mtc_freq & 15,
            ratio: config.tsc_ctc_ratio,
            reference: config.reference_tsc,
            errata: config.errata,
            world: World::default(),
            psb_plus: false,
            now: 0,
            tsc: None,
            crystal: None,
            nominal_ratio: config.nominal_ratio,
            core_ratio: 0,
            cycles: None,
        }
    }

    /// The last time, 0 before the first.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// The TSC that a packet has the lower bits of.
    pub fn whole(&self, packet: u64) -> u64 {
        whole_tsc(packet, self.reference)
    }

    /// The time by the core cycles since the last one; `None` where nothing counts them.
    pub fn reckoned(&self) -> Option<Reckoned> {
        let cycles = self.cycles.filter(|_| self.core_ratio != 0 && self.nominal_ratio != 0)?;
        let since = u128::from(cycles) * u128::from(self.nominal_ratio) / u128::from(self.core_ratio);
        let tsc = self.now.saturating_add(u64::try_from(since).unwrap_or(u64::MAX));
        Some(Reckoned { tsc, since: tsc - self.now })
    }

    /// Packets were lost: MTC counts no further.
    pub fn forget(&mut self) {
        self.lose();
        self.psb_plus = false;
    }

    fn lose(&mut self) {
        (self.tsc, self.crystal, self.cycles) = (None, None, None);
    }

    /// A PSB was read.
    pub fn psb(&mut self, data: &[u8], behind_psb: usize) {
        self.world.at_psb(data, behind_psb, self.errata);
        self.psb_plus = true;
    }

    /// The TSCs that packets have are a guest's.
    fn is_guest(&self) -> bool {
        self.world.is_guest()
    }

    /// Whether a TSC is far ahead of the last time, and the next one is in front of it: then a damaged packet has it, and all
    /// later times would be that one.
    pub fn is_contradicted(&self, packet: u64, behind: &Reader<'_>) -> bool {
        let tsc = self.whole(packet);
        let now = self.now;
        if self.is_guest() || now == 0 || tsc.saturating_sub(now) < FAR {
            return false;
        }
        let (mut reader, mut ahead) = (behind.clone(), self.clone());
        for _ in 0..MAX_TO_TSC {
            match reader.read_behind_pads() {
                Ok(Some((_, Packet::Tsc(next)))) if !ahead.is_guest() => {
                    return (now..tsc).contains(&self.whole(next));
                }
                Ok(Some((_, Packet::Psb))) => ahead.psb(reader.data(), reader.offset()),
                Ok(Some((_, packet @ Packet::Pip { .. }))) => drop(ahead.take(&packet)),
                Ok(Some(_)) => {}
                Ok(None) => return false,
                Err(_) if reader.resynchronize().is_none() => return false,
                Err(_) => {}
            }
        }
        false
    }

    /// The time that the packet tells.
    pub fn take(&mut self, packet: &Packet) -> Option<u64> {
        match *packet {
            Packet::Tsc(_) | Packet::Tma { .. } if self.is_guest() => {
                // Outside of a PSB+ it says that MTC packets may be missing in front of it.
                if !self.psb_plus {
                    self.lose();
                }
                None
            }
            Packet::Tsc(packet) => {
                let tsc = self.whole(packet);
                (self.tsc, self.crystal) = (Some(tsc), None);
                Some(self.advance(tsc))
            }
            Packet::Tma { ctc, fast_counter } if self.ratio.0 != 0 && self.ratio.1 != 0 => {
                self.crystal = self.tsc.map(|tsc| Crystal {
                    tsc: tsc.saturating_sub(fast_counter.into()),
                    low: u64::from(ctc) & ((1 << self.frequency) - 1),
                    last: (ctc >> self.frequency) as u8,
                    known: (u16::MAX >> self.frequency) as u8,
                    ticks: 0,
                });
                None
            }
            Packet::Mtc(payload) => {
                let crystal = self.crystal.as_mut()?;
                crystal.ticks += u64::from(payload.wrapping_sub(crystal.last) & crystal.known) << self.frequency;
                (crystal.last, crystal.known) = (payload, u8::MAX);
                let since = u128::from(crystal.ticks.saturating_sub(crystal.low)) * u128::from(self.ratio.0);
                let tsc = crystal.tsc.saturating_add((since / u128::from(self.ratio.1)) as u64);
                Some(self.advance(tsc))
            }
            Packet::Pip { non_root, .. } => {
                self.world.enter(non_root);
                None
            }
            Packet::Psbend => {
                self.psb_plus = false;
                None
            }
            Packet::Cbr { ratio } => {
                self.core_ratio = ratio;
                None
            }
            Packet::Cyc(cycles) => {
                self.cycles = Some(self.cycles.unwrap_or(0).saturating_add(cycles));
                None
            }
            _ => None,
        }
    }

    fn advance(&mut self, tsc: u64) -> u64 {
        self.cycles = self.cycles.map(|_| 0);
        self.now = self.now.max(tsc);
        self.now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rare_mtcs_count_from_a_tma_that_lacks_their_high_bits() {
        let mut ticks = Ticks::new(&Config { mtc_freq: 9, tsc_ctc_ratio: (1, 1), ..Config::default() });
        let told = |count: u64| Packet::Mtc((count >> 9) as u8);
        ticks.take(&Packet::Tsc(5_000));
        ticks.take(&Packet::Tma { ctc: 0xff00, fast_counter: 0 });
        // The clock stood at 0x1ff00.
        assert_eq!(ticks.take(&told(0x2_0000)), Some(5_000 + 0x100));
        assert_eq!(ticks.take(&told(0x2_0200)), Some(5_000 + 0x300));
    }
}
