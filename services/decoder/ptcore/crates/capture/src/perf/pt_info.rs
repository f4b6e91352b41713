//! PERF_RECORD_AUXTRACE_INFO of Intel PT (tools/perf/util/intel-pt.h) and PERF_RECORD_TIME_CONV.

use super::attributes::Attribute;
use crate::fields::{Fields, Short};
use crate::Conversion;
use pt_flow::Config;

const TYPE_INTEL_PT: u32 = 1;
/// Bits of the event's `config` as of IA32_RTIT_CTL: branches that are taken or not are not told, and returns not as such
/// (arch/x86/events/intel/pt.c of Linux, `notnt` and `noretcomp`).
const NO_TNT: u64 = 1 << 55;
const NO_RETURN_COMPRESSION: u64 = 1 << 11;
const WITHOUT_TNT: u64 = NO_TNT | NO_RETURN_COMPRESSION;
/// The other bits say what they say, and that branches are traced at all (`pt`, `branch`); without the first they are.
const PASSED_ON: u64 = 1;
const BRANCHES: u64 = 1 << 13;

fn has_branches(config: u64) -> bool {
    config & (PASSED_ON | BRANCHES) != PASSED_ON
}

/// By what it is told who runs on a core (`have_sched_switch` of tools/perf/util/intel-pt.c).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Switches {
    #[default]
    Untold,
    /// Of sched:sched_switch.
    Samples,
    /// PERF_RECORD_SWITCH, PERF_RECORD_SWITCH_CPU_WIDE.
    Records,
}

/// How Processor Trace was set up.
#[derive(Clone, Copy, Debug, Default)]
pub struct PtInfo {
    pub conversion: Option<Conversion>,
    pub snapshots: bool,
    pub switches: Switches,
    pub pmu: u64,
    mtc_freq_bits: u64,
    tsc_ctc_ratio: (u32, u32),
    nominal_ratio: u8,
}

impl PtInfo {
    /// The error is the type when it is not Intel PT.
    pub fn read(body: &[u8]) -> Result<Result<PtInfo, u32>, Short> {
        let mut fields = Fields::new(body, 0);
        let kind = fields.u32()?;
        if kind != TYPE_INTEL_PT {
            return Ok(Err(kind));
        }
        fields.u32()?;
        let pmu = fields.u64()?;
        let (shift, mult, zero, known) = (fields.u64()?, fields.u64()?, fields.u64()?, fields.u64()?);
        let (_tsc_bit, _noretcomp_bit, switches) = (fields.u64()?, fields.u64()?, fields.u64()?);
        let (snapshots, _per_cpu) = (fields.u64()?, fields.u64()?);
        // Older ones end here.
        let mut more = || fields.u64().unwrap_or(0);
        let (_mtc_bit, mtc_freq_bits, numerator, denominator, _cyc_bit, nominal) =
            (more(), more(), more(), more(), more(), more());
        Ok(Ok(PtInfo {
            conversion: (known != 0).then(|| Conversion::new(mult, shift, zero)).flatten(),
            snapshots: snapshots != 0,
            switches: match switches {
                0 => Switches::Untold,
                1 => Switches::Samples,
                _ => Switches::Records,
            },
            pmu,
            mtc_freq_bits,
            tsc_ctc_ratio: (u32::try_from(numerator).unwrap_or(0), u32::try_from(denominator).unwrap_or(0)),
            nominal_ratio: u8::try_from(nominal).unwrap_or(0),
        }))
    }

    /// The attribute of the Processor Trace event.
    pub fn attribute<'a>(&self, all: &'a [Attribute]) -> Option<&'a Attribute> {
        all.iter().find(|attribute| u64::from(attribute.kind) == self.pmu)
    }

    /// Whether no branches are told at all, as where only PTWRITE or power packets were wanted.
    pub fn leaves_out_branches(&self, all: &[Attribute]) -> bool {
        self.attribute(all).is_some_and(|attribute| !has_branches(attribute.config))
    }

    /// Whether neither branches nor compressed returns are told: most returns are compressed into the packet that is left out, and
    /// the target that comes next would be taken for where one leads (perf-intel-pt(1), `notnt`).
    pub fn leaves_out_returns(&self, all: &[Attribute]) -> bool {
        self.attribute(all)
            .is_some_and(|&Attribute { config, .. }| config & WITHOUT_TNT == NO_TNT && has_branches(config))
    }

    pub fn config(&self, attribute: Option<&Attribute>) -> Config {
        let bits = self.mtc_freq_bits;
        let freq = attribute.map_or(0, |attribute| (attribute.config & bits) >> bits.trailing_zeros().min(63));
        Config {
            mtc_freq: (freq & 15) as u8,
            tsc_ctc_ratio: self.tsc_ctc_ratio,
            nominal_ratio: self.nominal_ratio,
            without_tnt: attribute.is_some_and(|attribute| attribute.config & WITHOUT_TNT == WITHOUT_TNT),
            ..Config::default()
        }
    }
}

/// The address filters as perf gave them to the kernel; empty without any, and of older ones, which end before them.
pub fn filters(body: &[u8]) -> Result<String, Short> {
    let mut fields = Fields::new(body, 0);
    // What `PtInfo` has.
    let before = fields.bytes(8 * 17);
    match before.and_then(|_| fields.u64()) {
        Ok(length) => fields.bytes(length).map(|text| Fields::new(text, 0).text()),
        Err(_) => Ok(String::new()),
    }
}

/// PERF_RECORD_TIME_CONV.
pub fn time_conversion(body: &[u8]) -> Option<Conversion> {
    let mut fields = Fields::new(body, 0);
    let (shift, mult, zero) = (fields.u64().ok()?, fields.u64().ok()?, fields.u64().ok()?);
    let _cycles_and_mask = fields.bytes(16);
    // cap_user_time_zero: the others say something. Older ones end before it.
    let known = fields.bytes(1).is_ok_and(|known| known == [0]);
    Conversion::new(mult, shift, zero).filter(|_| !known)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::recording::{halves, words};

    #[test]
    fn an_event_may_leave_out_which_branches_were_taken() {
        let info = PtInfo::read(&words(&[1, 8, 0, 1, 0, 1, 0x400, 0x800, 3, 0, 1])).unwrap().unwrap();
        let event = |config| [halves(&[8, 64]), words(&[config, 0, 0, 0, 0, 0, 0])].concat();
        let read = |config| Attribute::read(&mut Fields::new(&event(config), 0)).unwrap();
        let without_tnt = |config| info.config(info.attribute(&[read(config)])).without_tnt;
        assert_eq!([0x2c00, 1 << 55 | 0x2400, 1 << 55 | 0x2c00].map(without_tnt), [false, false, true]);
        let leaves_out_returns = |config| info.leaves_out_returns(&[read(config)]);
        assert_eq!([0x2c01, 1 << 55 | 0x2401, 1 << 55 | 0x2c01].map(leaves_out_returns), [false, true, false]);
        // Where no branches are traced at all none is wanted.
        assert_eq!([1 << 55, 1 << 55 | 1].map(leaves_out_returns), [true, false]);
    }
}
