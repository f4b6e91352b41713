//! What processors are known to do wrong, by family, model and stepping.

/// A processor as CPUID leaf 1 names it, extended family and model taken in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    pub family: u16,
    pub model: u8,
    pub stepping: u8,
}

/// Which errata a decoder must allow for. Each has the name it had first, in Intel's specification updates where it
/// is in one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Errata {
    /// PSB+ may hold FUP and MODE packets although tracing is disabled there.
    pub bdm70: bool,
    /// The branch before a transactional abort may be recorded wrongly.
    pub bdm64: bool,
    /// OVF may follow the first byte of a longer CYC.
    pub skd007: bool,
    /// VM entry that disables tracing may be recorded as if it had been interrupted.
    pub skd022: bool,
    /// The FUP behind OVF may be missing.
    pub skd010: bool,
    /// TIP.PGD may lack the address when a direct branch leaves the filtered range.
    pub skl014: bool,
    /// A TIP.PGD may follow OVF although tracing is disabled already.
    pub apl11: bool,
    /// A FUP may follow OVF although tracing is disabled.
    pub apl12: bool,
    /// The CYC before a PSB may be missing.
    pub skl168: bool,
    /// TMA may be corrupt.
    pub skz84: bool,
    /// The FUP of an interruption at an indirect or far branch may have the address behind it. It has no name of Intel's: Linux's
    /// perf has it as `INTEL_PT_FUP_WITH_NLIP`.
    pub fup_with_nlip: bool,
}

impl Errata {
    /// Those of `cpu`, as `pt_cpu_errata` of libipt lists them by model, and of models that it does not know those of the ones
    /// before them; `None` for a processor nobody told about. Steppings do not differ in these errata.
    pub fn of(cpu: Cpu) -> Option<Errata> {
        let none = Errata::default();
        // Cores that came with Skylake and behind it share these.
        let core = Errata { bdm70: true, skd022: true, skl014: true, ..none };
        Some(match (cpu.family, cpu.model) {
            // Broadwell.
            (6, 0x3d | 0x47 | 0x4f | 0x56) => Errata { bdm70: true, bdm64: true, ..none },
            // Skylake, Kaby Lake, Comet Lake clients.
            (6, 0x4e | 0x5e | 0x8e | 0x9e | 0xa5 | 0xa6) => Errata { skd007: true, skd010: true, skl168: true, ..core },
            // Servers from Skylake on.
            (6, 0x55 | 0x6a | 0x6c | 0x8f | 0xad | 0xae | 0xcf) | (0x13, 0x01) => Errata { skz84: true, ..core },
            // Cannon Lake, Ice Lake, Tiger Lake, Rocket Lake clients.
            (6, 0x66 | 0x7d | 0x7e | 0x8c | 0x8d | 0xa7 | 0xa8) => core,
            // Alder Lake and later clients, which mix cores.
            (6, 0x97 | 0x9a | 0xaa | 0xac | 0xb5 | 0xb7 | 0xba | 0xbd | 0xbf | 0xc5 | 0xc6 | 0xcc | 0xd5)
            | (0x12, 0x01 | 0x03) => Errata { apl11: true, ..core },
            // Goldmont, the clients and the servers: perf knows of the last one of the former alone, but the core is the same.
            (6, 0x5c | 0x5f) => Errata { apl11: true, apl12: true, fup_with_nlip: true, ..none },
            // Goldmont Plus and later small cores, as Linux's intel-family.h numbers them.
            (6, 0x7a | 0x86 | 0x96 | 0x9c | 0xaf | 0xb6 | 0xbe | 0xdd) => Errata { apl11: true, ..none },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errata_go_with_the_model() {
        let of = |family, model| Errata::of(Cpu { family, model, stepping: 3 });
        assert!(of(6, 0x5e).is_some_and(|errata| errata.skd007 && !errata.apl11));
        assert!(of(6, 0x5c).is_some_and(|errata| errata.apl12 && errata.fup_with_nlip && !errata.bdm70));
        // Goldmont Plus has neither.
        assert!(of(6, 0x7a).is_some_and(|errata| errata.apl11 && !errata.apl12 && !errata.fup_with_nlip));
        // Alder Lake-N has small cores alone, unlike the other Alder Lakes.
        assert!(of(6, 0xbe).is_some_and(|errata| errata.apl11 && !errata.bdm70));
        assert!(of(6, 0x97).is_some_and(|errata| errata.apl11 && errata.bdm70));
        // Each core from Skylake on leaves out the address.
        for (family, model) in [(6, 0x55), (6, 0x66), (6, 0x8f), (6, 0x97), (6, 0xad), (6, 0xcf), (6, 0xc6), (0x13, 1)]
        {
            assert!(of(family, model).is_some_and(|errata| errata.skl014 && errata.skd022), "{family:x} {model:x}");
        }
        assert_eq!(of(6, 0), None);
        assert_eq!(of(15, 0x5e), None);
    }
}
