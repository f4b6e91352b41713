//! All 64 bits of the TSC, of which a packet has the lowest 56.

const BITS: u32 = 56;

/// The time of a TSC packet: of all times with its 56 bits the one nearest to `reference`; the packet's own bits when
/// that is 0. SDM section "Timestamp Counter (TSC) Packet".
#[inline]
pub fn whole_tsc(packet: u64, reference: u64) -> u64 {
    let lowest = reference.saturating_sub(1 << (BITS - 1));
    lowest.saturating_add(packet.wrapping_sub(lowest) & ((1 << BITS) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRAP: u64 = 1 << BITS;

    #[test]
    fn without_a_reference_a_packet_tells_the_time_itself() {
        for time in [0, 1, WRAP / 2, WRAP - 1] {
            assert_eq!(whole_tsc(time, 0), time);
        }
    }

    #[test]
    fn times_up_to_half_a_wrap_before_and_behind_the_reference_are_whole() {
        for reference in [WRAP, WRAP + 5, 3 * WRAP - 1, 0x1234_5678_9abc_def0] {
            for time in [reference - WRAP / 2, reference - 6, reference, reference + 6, reference + WRAP / 2 - 1] {
                assert_eq!(whole_tsc(time % WRAP, reference), time, "{time:#x} near {reference:#x}");
            }
        }
    }

    #[test]
    fn a_reference_that_cannot_be_does_no_harm() {
        assert_eq!(whole_tsc(WRAP / 2 - 1, u64::MAX), u64::MAX - WRAP / 2);
        assert_eq!(whole_tsc(0, u64::MAX), u64::MAX);
    }
}
