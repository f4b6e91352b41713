//! Time from TSC, TMA, MTC, CYC and CBR packets.

use pt_packet::Errata;

/// What is known of the processor that recorded, and how to decode (CPUID leaf 15H, IA32_RTIT_CTL, MSR_PLATFORM_INFO).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// IA32_RTIT_CTL.MTCFreq: an MTC packet every 2^n ticks of the crystal clock.
    pub mtc_freq: u8,
    /// TSC ticks per crystal clock tick, as numerator (CPUID.15H:EBX) and denominator (EAX).
    pub tsc_ctc_ratio: (u32, u32),
    /// Core to bus clock ratio at which core cycles and TSC ticks are the same; 0 when unknown.
    pub nominal_ratio: u8,
    /// What the processor does wrong: [`Errata::of`].
    pub errata: Errata,
    /// Addresses that were traced; used where [`Errata::skl014`] leaves an address out.
    pub filter: AddressFilter,
    /// Where the code does not fit the packets, goes on at the next packet that has an address rather than at the
    /// next PSB: less is lost, and what follows is not checked by a PSB.
    pub resume_at_address: bool,
    /// Ends the flow with the last packet. Without it the code behind that runs on as far as it leads by itself, as
    /// in libipt 2.0.
    pub stop_at_last_packet: bool,
}

/// Address ranges with their last addresses (IA32_RTIT_ADDRn_A and _B), as filters rather than as TraceStop ranges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddressFilter {
    pub ranges: [Option<(u64, u64)>; 4],
}

impl AddressFilter {
    /// Whether execution at `address` is traced; everything is without any range.
    pub fn traces(&self, address: u64) -> bool {
        let mut ranges = self.ranges.iter().flatten().peekable();
        ranges.peek().is_none() || ranges.any(|&(first, last)| (first..=last).contains(&address))
    }
}

/// Follows the timing packets of a stream; `now` never goes back.
///
/// SDM section "Timing packets": TMA ties the TSC to the crystal clock (the fast counter is the TSC ticks since that
/// clock's last tick), MTC carries 8 bits of the crystal clock from bit `mtc_freq` on, CYC counts core cycles since the
/// last CYC.
#[derive(Clone, Debug)]
pub struct Time {
    config: Config,
    now: u64,
    /// The time of the last TSC or MTC, to which cycles are added.
    base: u64,
    cycles: u64,
    known: bool,
    crystal: Option<Crystal>,
    ratio: u8,
}

#[derive(Clone, Copy, Debug)]
struct Crystal {
    /// TSC at the crystal tick the TMA packet names.
    tsc: u64,
    /// The low bits of that tick that no MTC carries.
    low: u64,
    /// Payload of the last MTC.
    last: u8,
    /// Crystal ticks from (`tsc` - `low` ticks) to the last MTC.
    ticks: u64,
}

impl Time {
    pub fn new(config: Config) -> Self {
        Time { config, now: 0, base: 0, cycles: 0, known: false, crystal: None, ratio: 0 }
    }

    /// TSC ticks; 0 before the first TSC packet.
    #[inline(always)]
    pub fn now(&self) -> u64 {
        self.now
    }

    pub fn tsc(&mut self, ticks: u64) {
        self.known = true;
        self.crystal = None;
        self.rebase(ticks);
    }

    pub fn tma(&mut self, ctc: u16, fast_counter: u16) {
        if !self.known || self.config.tsc_ctc_ratio.0 == 0 || self.config.tsc_ctc_ratio.1 == 0 {
            return;
        }
        let ctc = u64::from(ctc);
        let shift = self.config.mtc_freq & 15;
        self.crystal = Some(Crystal {
            tsc: self.base.saturating_sub(fast_counter.into()),
            low: ctc & ((1 << shift) - 1),
            last: (ctc >> shift) as u8,
            ticks: 0,
        });
    }

    pub fn mtc(&mut self, payload: u8) {
        let Some(crystal) = &mut self.crystal else { return };
        crystal.ticks += u64::from(payload.wrapping_sub(crystal.last)) << (self.config.mtc_freq & 15);
        crystal.last = payload;
        let (numerator, denominator) = self.config.tsc_ctc_ratio;
        let since = u128::from(crystal.ticks.saturating_sub(crystal.low)) * u128::from(numerator);
        let ticks = crystal.tsc.wrapping_add((since / u128::from(denominator)) as u64);
        self.rebase(ticks);
    }

    pub fn cyc(&mut self, cycles: u64) {
        if !self.known {
            return;
        }
        self.cycles = self.cycles.saturating_add(cycles);
        let ticks = match (self.ratio, self.config.nominal_ratio) {
            (0, _) | (_, 0) => self.cycles,
            (ratio, nominal) if ratio == nominal => self.cycles,
            (ratio, nominal) => (u128::from(self.cycles) * u128::from(nominal) / u128::from(ratio)) as u64,
        };
        self.now = self.now.max(self.base.saturating_add(ticks));
    }

    pub fn cbr(&mut self, ratio: u8) {
        if self.known && ratio != self.ratio {
            self.base = self.now;
            self.cycles = 0;
        }
        self.ratio = ratio;
    }

    fn rebase(&mut self, ticks: u64) {
        self.base = ticks;
        self.cycles = 0;
        self.now = self.now.max(ticks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skylake() -> Time {
        Time::new(Config { mtc_freq: 3, tsc_ctc_ratio: (168, 2), nominal_ratio: 20, ..Config::default() })
    }

    #[test]
    fn no_time_is_known_before_the_first_tsc() {
        let mut time = skylake();
        time.tma(1, 1);
        time.mtc(3);
        time.cyc(100);
        assert_eq!(time.now(), 0);
    }

    #[test]
    fn an_mtc_is_its_distance_in_crystal_ticks_from_the_tma() {
        let mut time = skylake();
        time.tsc(10_000);
        time.tma(0x1235, 40); // crystal tick 0x1235 at 9960; MTC payload bits 0x46, 5 ticks behind it
        time.mtc(0x47); // 3 ticks later
        assert_eq!(time.now(), 9_960 + 3 * 84);
        time.mtc(0x49);
        assert_eq!(time.now(), 9_960 + 19 * 84);
    }

    #[test]
    fn mtc_payloads_wrap() {
        let mut time = skylake();
        time.tsc(10_000);
        time.tma(0xff << 3, 0);
        time.mtc(0x01);
        assert_eq!(time.now(), 10_000 + 16 * 84);
    }

    #[test]
    fn cycles_count_in_the_ratio_of_the_clocks() {
        let mut time = skylake();
        time.cbr(40);
        time.tsc(1000);
        time.cyc(10);
        time.cyc(11);
        assert_eq!(time.now(), 1010);
    }

    #[test]
    fn time_never_goes_back() {
        let mut time = skylake();
        time.tsc(1000);
        time.cyc(500);
        time.tsc(1200);
        assert_eq!(time.now(), 1500);
        time.cyc(400);
        assert_eq!(time.now(), 1600);
    }
}
