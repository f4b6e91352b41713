//! While tracing is disabled packets hardly tell anything but times.

use super::hot::passed_over;
use super::Walk;
use crate::time::Pace;
use crate::{CodeMemory, Sink};

impl<M: CodeMemory, S: Sink> Walk<'_, '_, M, S> {
    /// Takes up the times ahead as long as they go on at a pace.
    #[inline(never)]
    pub(super) fn pass_times(&mut self) {
        if self.events.busy || self.events.reader.in_block() {
            return;
        }
        let data = self.hot_data();
        let events = &mut self.events;
        let (mut pace, mut at) = (events.time.pace(), events.reader.offset());
        let passed = times_ahead::<S>(data, &mut at, &mut pace);
        if passed != 0 {
            events.packets += passed;
            if S::TIMED {
                events.time.keep(&pace);
            }
            events.reader.seek(at);
        }
    }
}

/// Takes up what tells nothing but a time that goes on at the pace, or nothing at all; returns how many packets.
#[inline(always)]
pub(super) fn times_ahead<S: Sink>(data: &[u8], at: &mut usize, pace: &mut Pace) -> u64 {
    let mut packets = 0;
    while let Some((ahead, size)) = data.get(*at..).and_then(|ahead| Some((ahead, passed_over(ahead)?))) {
        let goes_on = match ahead[0] {
            _ if !S::TIMED => true,
            0x59 => pace.mtc(ahead[1]),
            0 => true,
            // Of more bytes it is looked at.
            _ => size < 3 && pace.cyc(cycles(&ahead[..size])),
        };
        if !goes_on {
            break;
        }
        *at += size;
        packets += 1;
    }
    packets
}

/// Of a CYC packet of up to two bytes.
fn cycles(packet: &[u8]) -> u64 {
    let (first, more) = packet.split_first().expect("a packet");
    more.iter().rev().fold(0, |cycles, byte| cycles << 7 | u64::from(byte >> 1)) << 5 | u64::from(first >> 3)
}
