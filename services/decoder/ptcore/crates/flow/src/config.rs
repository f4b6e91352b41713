//! What a decoder must know beforehand.

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
    /// A TSC of about the time of the recording: packets have not all the bits of theirs ([`crate::whole_tsc`]). 0 when
    /// unknown.
    pub reference_tsc: u64,
    /// What the processor does wrong: [`Errata::of`].
    pub errata: Errata,
    /// Addresses that were traced; used where packets do not say where a branch led ([`Errata::skl014`], conditional
    /// branches).
    pub filter: AddressFilter,
    /// Where the code does not fit the packets, goes on at the next packet that has an address rather than at the
    /// next PSB: less is lost, and what follows is not checked by a PSB.
    pub resume_at_address: bool,
    /// Ends the flow with the last packet. Without it the code behind that runs on as far as it leads by itself, as
    /// in libipt 2.0.
    pub stop_at_last_packet: bool,
    /// Conditional branches were not traced (IA32_RTIT_CTL.DisTNT): behind one the flow goes on at the next packet that
    /// has an address.
    pub without_tnt: bool,
    /// Forgets at OVF how long a core cycle is, lest a change of the clock was lost.
    pub forget_rate_at_overflow: bool,
    /// Reckons times as libipt 2 does, for comparison with it: without fractions of TSC ticks from MTC to MTC and from
    /// CYC to CYC, a core cycle in 256ths of a TSC tick, measured also where a ratio is known, over TSC packets between
    /// which MTC packets may be missing, and by packets that cannot be right too.
    pub clock_of_libipt: bool,
    /// The address of the kernel's function in which it goes from one thread to another, for sinks that divide by thread.
    pub thread_switch: Option<u64>,
    /// Bytes at the end that were put behind the stream, to stop the flow where it was cut: none of them is lost.
    pub appended: usize,
}

/// Address ranges with their last addresses (IA32_RTIT_ADDRn_A and _B), as filters rather than as TraceStop ranges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddressFilter {
    pub ranges: [Option<(u64, u64)>; 4],
}

impl AddressFilter {
    pub fn is_empty(&self) -> bool {
        self.ranges.iter().all(Option::is_none)
    }

    /// Whether execution at `address` is traced; everything is without any range.
    pub fn traces(&self, address: u64) -> bool {
        self.is_empty() || self.ranges.iter().flatten().any(|&(first, last)| (first..=last).contains(&address))
    }
}
