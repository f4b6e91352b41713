//! Packets to what leads the flow on: branches and targets, each with its time.

use super::{passed_over, Taken, IP_SIZES, ROOM};
use crate::code::CodeCache;
use crate::code_block::SCRATCH;
use crate::lead::Lead;
use crate::paths::WINDOW;
use crate::view::View;
use crate::Sink;
use pt_packet::{Packet, OVF};

/// Leads that are read before they are followed.
pub const MOST: usize = 64;

/// What leads on, and when.
#[derive(Clone, Copy)]
pub struct Timed {
    pub lead: Lead,
    pub time: u64,
}

/// Leads in their order.
pub struct Leads {
    some: usize,
    list: [Timed; MOST],
}

/// Why no more were read.
pub enum Halt {
    /// There are as many as were asked for.
    Enough,
    /// The packet ahead is another, or too near to the end.
    Packet,
    /// So is the time packet ahead, of so many bytes.
    Time(Packet, usize),
    /// The target ahead was not come to for a while.
    Target,
}

/// Branches that a TNT packet may have.
const SHORT: u32 = 6;
/// The bits of an IP that a TIP's payload takes the place of, by its compression; none where it says nothing. And those
/// above, where they are all like the highest one.
const REPLACED: [u64; 8] = [0, 0xffff, 0xffff_ffff, 0xffff_ffff_ffff, 0xffff_ffff_ffff, 0, u64::MAX, 0];
const EXTENDED: [u32; 8] = [0, 0, 0, 16, 0, 0, 0, 0];

impl Leads {
    pub fn new() -> Self {
        Leads { some: 0, list: [Timed { lead: Lead::NONE, time: 0 }; MOST] }
    }

    pub fn all(&mut self) -> &mut [Timed] {
        &mut self.list[..self.some]
    }

    /// Reads the packets of as many leads as there is room for.
    #[inline(never)]
    pub fn read<S: Sink>(&mut self, code: &CodeCache, view: View, data: &[u8], taken: &mut Taken) -> Halt {
        self.up_to::<S>(MOST, true, |ip| code.find_again(view, ip), data, taken)
    }

    /// Takes up the packets of so many leads that were read before. Which blocks they lead to may not be known any more.
    #[cold]
    #[inline(never)]
    pub fn again<S: Sink>(&mut self, some: usize, data: &[u8], taken: &mut Taken) {
        self.up_to::<S>(some, true, |_| Some(SCRATCH), data, taken);
    }

    /// Takes up the packets of the lead ahead as far as branches of them are used when so many of all are left; returns those
    /// that are left of the last one. What stands behind bits that wait for a target may be no more branches (SDM section
    /// "Deferred TIPs"): whether that is so is for others to see.
    #[cold]
    #[inline(never)]
    pub fn packet_of<S: Sink>(&mut self, left: u32, data: &[u8], taken: &mut Taken) -> Lead {
        let begin = *taken;
        self.again::<S>(1, data, taken);
        let mut used = self.list[0].lead.count() - left;
        *taken = begin;
        while let Halt::Enough = self.up_to::<S>(1, false, |_| None, data, taken) {
            let lead = self.list[0].lead;
            if used < lead.count() {
                return lead.behind((lead.count() - used) as u8);
            }
            used -= lead.count();
            if used == 0 {
                break;
            }
        }
        Lead::NONE
    }

    #[inline(always)]
    fn up_to<S: Sink>(
        &mut self,
        most: usize,
        joined: bool,
        find: impl Fn(u64) -> Option<u32>,
        data: &[u8],
        taken: &mut Taken,
    ) -> Halt {
        self.some = 0;
        let Taken { mut packets, mut pace, mut last_ip, .. } = *taken;
        let mut rest = data.get(taken.at..).unwrap_or_default();
        let mut slots = self.list[..most].iter_mut();
        let Some(mut slot) = slots.next() else { return Halt::Enough };
        let mut used = usize::MAX;
        let halt = loop {
            let Some(ahead) = rest.first_chunk::<ROOM>() else { break Halt::Packet };
            let mut word = u64::from_le_bytes(*ahead.first_chunk().expect("of eight bytes"));
            let mut size = 0;
            if word & 3 == 3 {
                let more = word >> 2 & 1;
                let mut cycles = word >> 3 & 0x1f | ((word >> 4 & 0xfe0) * more);
                size = 1 + more as usize;
                if word >> 8 & more != 0 {
                    // So many cycles are looked at, once there is a time.
                    if word >> 16 & 1 != 0 || S::TIMED && pace.now != 0 {
                        break Halt::Packet;
                    }
                    cycles |= (word >> 17 & 0x7f) << 12;
                    size = 3;
                }
                let behind = word >> (8 * size);
                // An OVF may have taken the place of what is left of the packet (`pt_packet::Errata::skd007`).
                if behind & 3 == 3 && (word >> 8) as u16 == u16::from_le_bytes(OVF) {
                    break Halt::Packet;
                }
                if S::TIMED && !pace.cyc(cycles) {
                    break Halt::Time(Packet::Cyc(cycles), size);
                }
                word = behind;
                packets += 1;
            }
            let first = word as u8;
            if is_tnt(first) {
                packets += 1;
                used = rest.len() - size;
                rest = &rest[size + 1..];
                let mut bits = u32::from(first >> 1);
                // TNT packets one behind the other are as one, as long as a path may use them; where nobody looks at times,
                // so are those with times between.
                while joined && bits >> (WINDOW - SHORT + 1) == 0 && rest.len() >= ROOM {
                    let first = rest[0];
                    if is_tnt(first) {
                        bits = append(bits, first);
                        rest = &rest[1..];
                    } else if let Some(size) = (!S::TIMED).then(|| passed_over(rest)).flatten() {
                        rest = &rest[size..];
                    } else {
                        break;
                    }
                    packets += 1;
                }
                *slot = Timed { lead: Lead(bits), time: pace.now };
            } else if first & 0x1f == 0x0d {
                let replaced = REPLACED[usize::from(first >> 5)];
                let payload = *ahead[size + 1..].first_chunk().expect("behind three bytes");
                let extended = EXTENDED[usize::from(first >> 5)];
                let ip = last_ip & !replaced | u64::from_le_bytes(payload) & replaced;
                let ip = ((ip << extended) as i64 >> extended) as u64;
                let target = find(ip).filter(|_| replaced != 0);
                let Some(target) = target else {
                    rest = &rest[size..];
                    break Halt::Target;
                };
                used = rest.len() - size;
                *slot = Timed { lead: Lead::target(target), time: pace.now };
                packets += 1;
                rest = &rest[size + 1 + usize::from(IP_SIZES[usize::from(first >> 5)])..];
                last_ip = ip;
            } else {
                rest = &rest[size..];
                if first == 0x59 {
                    let payload = (word >> 8) as u8;
                    if S::TIMED && !pace.mtc(payload) {
                        break Halt::Time(Packet::Mtc(payload), 2);
                    }
                    packets += 1;
                    rest = &rest[2..];
                } else if first == 0 {
                    let pads = rest.first_chunk().map_or(1, |next| u64::from_le_bytes(*next).trailing_zeros() / 8);
                    packets += u64::from(pads);
                    rest = &rest[pads as usize..];
                } else if first & 3 != 3 {
                    break Halt::Packet;
                }
                continue;
            }
            match slots.next() {
                Some(next) => slot = next,
                None => break Halt::Enough,
            }
        };
        // The slot at hand is an empty one unless all are full.
        self.some = most - slots.len() - usize::from(!matches!(halt, Halt::Enough));
        let used_at = if used == usize::MAX { taken.used_at } else { data.len() - used };
        *taken = Taken { at: data.len() - rest.len(), packets, used_at, pace, last_ip, ..*taken };
        halt
    }
}

/// The branches, and those of a short TNT behind them: the bit above the first ones makes place for the others.
#[inline(always)]
fn append(bits: u32, tnt: u8) -> u32 {
    let tnt = u32::from(tnt) | 1;
    (((bits - 1) << tnt.ilog2()) + tnt) >> 1
}

/// Whether that is a short TNT: neither odd nor a PAD nor the first byte of two.
#[inline(always)]
fn is_tnt(first: u8) -> bool {
    first.rotate_right(1).wrapping_sub(2) < 0x7e
}
