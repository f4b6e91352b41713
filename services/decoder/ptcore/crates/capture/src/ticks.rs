//! The times that clock packets give exactly.

use pt_flow::{whole_tsc, Config};
use pt_packet::Packet;

/// TSC and MTC packets as TSC ticks; never goes back. (`pt_flow` adds estimates in between.)
pub struct Ticks {
    /// IA32_RTIT_CTL.MTCFreq.
    frequency: u8,
    /// TSC ticks per tick of the crystal clock.
    ratio: (u32, u32),
    reference: u64,
    now: u64,
    tsc: Option<u64>,
    crystal: Option<Crystal>,
}

/// SDM section "Tracking Time": TMA ties TSC and crystal clock, MTC carries 8 bits of the latter.
struct Crystal {
    tsc: u64,
    /// Bits of the crystal clock below those that MTC carries.
    low: u64,
    last: u8,
    ticks: u64,
}

impl Ticks {
    pub fn new(config: &Config) -> Self {
        Ticks {
            frequency: config.mtc_freq & 15,
            ratio: config.tsc_ctc_ratio,
            reference: config.reference_tsc,
            now: 0,
            tsc: None,
            crystal: None,
        }
    }

    /// The last time, 0 before the first.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Packets were lost: MTC counts no further.
    pub fn forget(&mut self) {
        (self.tsc, self.crystal) = (None, None);
    }

    /// The time that the packet tells.
    pub fn take(&mut self, packet: &Packet) -> Option<u64> {
        match *packet {
            Packet::Tsc(packet) => {
                let tsc = whole_tsc(packet, self.reference);
                (self.tsc, self.crystal) = (Some(tsc), None);
                Some(self.advance(tsc))
            }
            Packet::Tma { ctc, fast_counter } if self.ratio.0 != 0 && self.ratio.1 != 0 => {
                self.crystal = self.tsc.map(|tsc| Crystal {
                    tsc: tsc.saturating_sub(fast_counter.into()),
                    low: u64::from(ctc) & ((1 << self.frequency) - 1),
                    last: (ctc >> self.frequency) as u8,
                    ticks: 0,
                });
                None
            }
            Packet::Mtc(payload) => {
                let crystal = self.crystal.as_mut()?;
                crystal.ticks += u64::from(payload.wrapping_sub(crystal.last)) << self.frequency;
                crystal.last = payload;
                let since = u128::from(crystal.ticks.saturating_sub(crystal.low)) * u128::from(self.ratio.0);
                let tsc = crystal.tsc.saturating_add((since / u128::from(self.ratio.1)) as u64);
                Some(self.advance(tsc))
            }
            _ => None,
        }
    }

    fn advance(&mut self, tsc: u64) -> u64 {
        self.now = self.now.max(tsc);
        self.now
    }
}
