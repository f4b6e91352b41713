//! What a stream consists of almost wholly, without a detour: branches, times and targets.

use super::Walk;
use crate::code_block::{Exit, Way, SCRATCH};
use crate::event::{Event, Fault};
use crate::lead::{mixed, Lead};
use crate::path::told;
use crate::paths::{Paths, Stop, WINDOW};
use crate::returns::Open;
use crate::tally::Tally;
use crate::time::Pace;
use crate::{BlockKind, CodeMemory, Path, Sink};
use pt_packet::{Ip, Packet};

/// Paths whose tallies stand in one sum.
#[derive(Default)]
struct Sums {
    instructions: u64,
    tally: Tally,
    paths: u32,
}

/// Bytes that the longest packet of those taken up here may have; nearer to the end of the stream they are not.
const ROOM: usize = 16;

/// What the next packet is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Other,
    /// Taken up: its branches, and how many.
    Tnt(u64, u32),
    Tip,
}

/// What the events are told of packets at the end only, of all of them at once.
struct Taken {
    /// Where the next packet begins.
    at: usize,
    packets: u64,
    tnt_bits: u64,
    /// Where the last one is that told where the flow went on, if one did.
    used_at: usize,
    pace: Pace,
}

/// Nowhere in the stream.
const NOWHERE: usize = usize::MAX;

const OVF: [u8; 2] = [0x02, 0xf3];

/// Bytes of the IP by its compression; 0 where there is none.
const IP_SIZES: [u8; 8] = [0, 2, 4, 6, 6, 0, 8, 0];

impl<M: CodeMemory, S: Sink> Walk<'_, '_, M, S> {
    /// Goes on as long as packets are branches, targets and cycles, and the code they lead through is plain. Whatever is
    /// not is left to `walk`, in the state in which it would have met it itself.
    #[inline(never)]
    pub(super) fn branches(&mut self) -> Result<(), Fault> {
        let mut sums = Sums::default();
        let (at, pace) = (self.events.reader.offset(), self.events.time.pace());
        let mut taken = Taken { at, packets: 0, tnt_bits: 0, used_at: NOWHERE, pace };
        let done = self.hot(&mut sums, &mut taken);
        self.hand_back(&mut taken);
        // Where code is not known the next packets may have been read already.
        self.events.reader.seek(taken.at.max(self.events.reader.offset()));
        self.settle(&mut sums);
        // What stands for code that is not kept need not begin where the flow does: `go` knows, as it does where it fails.
        if self.at != SCRATCH && done.is_ok() {
            self.ip = self.code.block(self.at).start;
        }
        done
    }

    /// Tells the events what was taken up of them.
    fn hand_back(&mut self, taken: &mut Taken) {
        let events = &mut self.events;
        events.packets += std::mem::take(&mut taken.packets);
        events.tnt_bits += std::mem::take(&mut taken.tnt_bits);
        let used_at = std::mem::replace(&mut taken.used_at, NOWHERE);
        if used_at != NOWHERE {
            events.offset = events.offset.max(used_at);
            events.last_offset = events.offset;
            events.passed_psb = None;
            self.fresh = true;
        }
        if S::TIMED {
            events.time.keep(&taken.pace);
        }
    }

    fn settle(&mut self, sums: &mut Sums) {
        let [conditional, compressed, calls, returns] = sums.tally.split();
        let sum = &mut self.statistics;
        sum.instructions += sums.instructions;
        sum.conditional_branches += conditional;
        sum.compressed_returns += compressed;
        sum.returns += compressed + returns;
        sum.calls += calls;
        *sums = Sums::default();
    }

    #[inline(always)]
    fn hot(&mut self, sums: &mut Sums, taken: &mut Taken) -> Result<(), Fault> {
        let data = self.events.reader.data();
        let data = &data[..data.len().min(self.events.alone_from)];
        let mut mix = mixed(self.at);
        let (mut bits, mut count) = (self.events.bits, std::mem::take(&mut self.events.count));
        loop {
            let left = self.use_up(bits, count, &mut mix, sums, taken.pace.now);
            if left != count {
                self.hare.rest();
            }
            let events = &mut self.events;
            if left != 0 || self.pending.is_some() || events.reader.in_block() || events.busy || !self.held.is_empty() {
                (events.bits, events.count) = (bits, left);
                return Ok(());
            }
            (bits, count) = match self.packet_ahead(data, taken) {
                Class::Tnt(bits, count) => (bits, count),
                Class::Tip => {
                    let Some(ip) = self.target(taken) else { return Ok(()) };
                    if !self.arrive(ip, taken, &mut mix, sums)? {
                        return Ok(());
                    }
                    (0, 0)
                }
                Class::Other => return Ok(()),
            };
        }
    }

    /// Uses up branches; how many of them need more than paths.
    #[inline(always)]
    fn use_up(&mut self, bits: u64, mut count: u32, mix: &mut u64, sums: &mut Sums, now: u64) -> u32 {
        while count != 0 {
            let size = count.min(WINDOW);
            let lead = Lead::branches(bits >> (count - size), size);
            let Some((used, stop)) = self.run_path(lead, mix, sums, now) else { break };
            count -= used;
            if stop == Stop::Other {
                break;
            }
        }
        count
    }

    /// Runs the path that way. `None` when there is none, or nobody knows where its return leads.
    #[inline(always)]
    fn run_path(&mut self, lead: Lead, mix: &mut u64, sums: &mut Sums, now: u64) -> Option<(u32, Stop)> {
        let entry = match self.code.paths.find(self.view, self.at, *mix, lead) {
            Some(entry) => entry,
            None => {
                self.find_path(lead)?;
                self.code.paths.find(self.view, self.at, *mix, lead)?
            }
        };
        if entry.steps != 0 {
            let (mut behind, mut returns_to) = ((entry.end, entry.next), None);
            if entry.stop == Stop::Return {
                let Some(Open::Block(call)) = self.returns.peek() else { return None };
                let call = self.code.block(call);
                let next = call.linked(Way::Next, self.view)?;
                (behind, returns_to) = ((next, mixed(next)), Some(call.end));
            }
            sums.instructions += u64::from(entry.instructions);
            sums.tally.add(entry.tally);
            sums.paths += 1;
            self.sink.path(&Path::new(self.code, entry, self.epoch, returns_to), now);
            if entry.high != 0 {
                self.returns.passed(entry.high.into());
                for &call in &entry.pushes[..entry.pushed.into()] {
                    self.returns.push_kept(call);
                }
            }
            if returns_to.is_some() {
                self.returns.pop();
            }
            (self.at, *mix) = behind;
        }
        let found = (u32::from(entry.used), entry.stop);
        if sums.paths == Tally::MOST {
            self.settle(sums);
        }
        Some(found)
    }

    #[cold]
    #[inline(never)]
    fn find_path(&mut self, lead: Lead) -> Option<()> {
        if self.code.paths.is_full() {
            self.code.paths = Paths::new();
            self.sink.paths(self.code.paths.generation);
        }
        self.code.find_path(self.memory, self.view, self.at, lead).map(drop)
    }

    /// Takes up cycles and branches up to a packet that needs more: a target, which stays in front, or any other.
    #[inline(always)]
    fn packet_ahead(&mut self, data: &[u8], taken: &mut Taken) -> Class {
        let events = &mut self.events;
        let mut at = taken.at;
        let mut packets = 0;
        let class = loop {
            let Some(&[first, second, third, ..]) = data.get(at..).and_then(|rest| rest.first_chunk::<ROOM>()) else {
                break Class::Other;
            };
            packets += 1;
            if first & 3 == 3 {
                let word = u64::from(u16::from_le_bytes([first, second]));
                let more = word >> 2 & 1;
                let mut cycles = word >> 3 & 0x1f | ((word >> 9 << 5) * more);
                let mut size = 1 + more;
                // An OVF may have taken the place of what is left of the packet (`pt_packet::Errata::skd007`).
                if [second, third] == OVF {
                    packets -= 1;
                    break Class::Other;
                }
                if word >> 8 & more != 0 {
                    if third & 1 != 0 {
                        packets -= 1;
                        break Class::Other;
                    }
                    cycles |= u64::from(third >> 1) << 12;
                    size = 3;
                }
                at += size as usize;
                if S::TIMED && !taken.pace.cyc(cycles) && events.take_time_apart(&mut taken.pace, &Packet::Cyc(cycles))
                {
                    (events.offset, events.last_offset) = (at - size as usize, at - size as usize);
                    break Class::Other;
                }
                continue;
            }
            if first & 1 == 0 && first > 2 {
                taken.used_at = at;
                let mut count = 6 - first.leading_zeros();
                let mut bits = u64::from(first >> 1) & ((1 << count) - 1);
                at += 1;
                // TNT packets one behind the other are as one; where nobody looks at times, so are those with times between.
                while count <= u64::BITS - 6 && at + ROOM <= data.len() {
                    let first = data[at];
                    if first & 1 == 0 && first > 2 {
                        let more = 6 - first.leading_zeros();
                        bits = bits << more | u64::from(first >> 1) & ((1 << more) - 1);
                        count += more;
                        at += 1;
                    } else if let Some(size) = (!S::TIMED).then(|| passed_over(data, at)).flatten() {
                        at += size;
                    } else {
                        break;
                    }
                    packets += 1;
                }
                taken.tnt_bits += u64::from(count);
                break Class::Tnt(bits, count);
            }
            if first == 0x59 {
                at += 2;
                if S::TIMED && !taken.pace.mtc(second) && events.take_time_apart(&mut taken.pace, &Packet::Mtc(second))
                {
                    (events.offset, events.last_offset) = (at - 2, at - 2);
                    break Class::Other;
                }
                continue;
            }
            if first == 0 {
                at += 1;
                continue;
            }
            packets -= 1;
            // The IP must say something.
            let target = first & 0x1f == 0x0d && IP_SIZES[usize::from(first >> 5)] != 0;
            break if target { Class::Tip } else { Class::Other };
        };
        taken.packets += packets;
        taken.at = at;
        class
    }

    /// Takes up the TIP packet in front.
    #[inline(always)]
    fn target(&mut self, taken: &mut Taken) -> Option<u64> {
        let (events, at) = (&mut self.events, &mut taken.at);
        let data = events.reader.data();
        let (&first, payload) = (data.get(*at)?, data.get(*at + 1..*at + 9)?);
        let size = usize::from(IP_SIZES[usize::from(first >> 5)]);
        let payload = u64::from_le_bytes(payload.try_into().ok()?) & u64::MAX >> (64 - 8 * size);
        let ip = Ip { compression: pt_packet::Compression::of(first >> 5)?, payload }.resolve(events.last_ip)?;
        events.last_ip = ip;
        events.offset = *at;
        events.last_offset = *at;
        taken.packets += 1;
        *at += 1 + size;
        Some(ip)
    }

    /// Goes up to the branch that went to `ip`, and on there. False when that branch is not what comes next; the target
    /// is pending then.
    #[inline(always)]
    fn arrive(&mut self, ip: u64, taken: &mut Taken, mix: &mut u64, sums: &mut Sums) -> Result<bool, Fault> {
        if let Some(next) = self.code.find_again(self.view, ip) {
            if let Some((_, Stop::Used)) = self.run_path(Lead::target(next), mix, sums, taken.pace.now) {
                self.hare.rest();
                taken.used_at = self.events.offset;
                return Ok(true);
            }
        }
        self.arrive_anew(ip, taken, mix, sums)
    }

    /// The same where the target was not come to for a while, or too many blocks lead to the branch.
    #[cold]
    #[inline(never)]
    fn arrive_anew(&mut self, ip: u64, taken: &mut Taken, mix: &mut u64, sums: &mut Sums) -> Result<bool, Fault> {
        let now = taken.pace.now;
        let kind = loop {
            match self.code.block(self.at).exit {
                Exit::IndirectJump => break BlockKind::IndirectJump,
                Exit::IndirectCall => break BlockKind::IndirectCall,
                Exit::Return => break BlockKind::Return,
                Exit::Jump | Exit::Call | Exit::Linear => {
                    // Runs that are longer than a path are left to where cycles are looked for.
                    let reached = self.run_path(Lead::NONE, mix, sums, now).is_some()
                        && matches!(
                            self.code.block(self.at).exit,
                            Exit::IndirectJump | Exit::IndirectCall | Exit::Return
                        );
                    if !reached {
                        self.pending = Some(Event::Target { ip: Some(ip) });
                        return Ok(false);
                    }
                }
                Exit::Cond | Exit::Far => {
                    self.pending = Some(Event::Target { ip: Some(ip) });
                    return Ok(false);
                }
            }
        };
        let number = self.at;
        let block = self.code.block(number);
        sums.instructions += u64::from(block.instructions);
        match kind {
            BlockKind::Return => self.statistics.returns += 1,
            BlockKind::IndirectCall => {
                self.statistics.calls += 1;
                self.returns.push(block.end, number);
            }
            _ => {}
        }
        self.sink.block(&told(self.code, block, kind, ip, self.epoch), now);
        self.hare.rest();
        taken.used_at = self.events.offset;
        match self.code.find_again(self.view, ip) {
            Some(number) => self.at = number,
            None => {
                // Where its code cannot be read the next events are asked.
                self.hand_back(taken);
                self.events.reader.seek(taken.at);
                let gone = self.go(ip);
                taken.pace = self.events.time.pace();
                gone?;
            }
        }
        *mix = mixed(self.at);
        Ok(true)
    }
}

/// Bytes of the packet at `at` when it tells nothing but a time, or nothing at all.
#[inline(always)]
fn passed_over(data: &[u8], at: usize) -> Option<usize> {
    let &[first, second, third, ..] = data[at..].first_chunk::<ROOM>()?;
    match first {
        0x59 => Some(2),
        0 => Some(1),
        _ if first & 3 != 3 || [second, third] == OVF => None,
        _ if first & 4 == 0 => Some(1),
        _ if second & 1 == 0 => Some(2),
        _ if third & 1 == 0 => Some(3),
        _ => None,
    }
}
