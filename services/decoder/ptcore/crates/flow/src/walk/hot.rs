//! What a stream consists of almost wholly, without a detour: branches, times and targets.

mod following;
mod leads;
mod rare;
mod system_calls;

use super::Walk;
use crate::code_block::{Exit, Way, SCRATCH};
use crate::event::{Event, Fault};
use crate::lead::Lead;
use crate::path::told;
use crate::paths::{Paths, Stop, WINDOW};
use crate::returns::Open;
use crate::tally::Tally;
use crate::time::Pace;
use crate::{BlockKind, CodeMemory, Path, Sink};
use following::Place;
use leads::{Halt, Leads, Timed};
use pt_packet::{Compression, Ip, OVF};

/// What the paths that ran hold.
#[derive(Default)]
struct Sums {
    /// Of some paths; all others are in `counts`.
    tally: Tally,
    paths: u32,
    counts: [u64; 5],
}

impl Sums {
    /// With so many paths in it the tally has still room for those of one lead.
    const MOST: u32 = Tally::MOST - WINDOW;

    #[cold]
    fn fold(&mut self) {
        self.paths = 0;
        let tally = std::mem::take(&mut self.tally).split();
        self.counts.iter_mut().zip(tally).for_each(|(count, more)| *count += more);
    }
}

/// No fewer bytes than a CYC of those taken up here has with the longest packet behind it; nearer to the end of the stream they
/// are not taken up.
const ROOM: usize = 16;

/// What the events are told of packets at the end only, of all of them at once.
#[derive(Clone, Copy)]
struct Taken {
    /// Where the next packet begins.
    at: usize,
    packets: u64,
    /// Where the last one is that told where the flow went on, if one did.
    used_at: usize,
    pace: Pace,
    last_ip: u64,
    /// Branches at hand, below a bit that is set, and how many.
    bits: u64,
    count: u32,
}

/// Nowhere in the stream.
const NOWHERE: usize = usize::MAX;

/// Bytes of the IP by its compression; 0 where there is none.
const IP_SIZES: [u8; 8] = [0, 2, 4, 6, 6, 0, 8, 0];

/// The IP of the packet in front, behind the last one, and how many bytes the packet has. `None` when its IP says nothing.
#[inline(always)]
fn ip_of(data: &[u8], last_ip: u64) -> Option<(u64, usize)> {
    let (&first, payload) = (data.first()?, data.get(1..9)?);
    let size = usize::from(IP_SIZES[usize::from(first >> 5)]);
    let payload = u64::from_le_bytes(payload.try_into().ok()?) & u64::MAX.checked_shr(64 - 8 * size as u32)?;
    let ip = Ip { compression: Compression::of(first >> 5)?, payload }.resolve(last_ip)?;
    Some((ip, 1 + size))
}

impl<'d, M: CodeMemory, S: Sink> Walk<'_, 'd, M, S> {
    /// Goes on as long as packets are branches, targets and cycles, and the code they lead through is plain. Whatever is
    /// not is left to `walk`, in the state in which it would have met it itself.
    #[inline(never)]
    pub(super) fn branches(&mut self) -> Result<(), Fault> {
        let mut sums = Sums::default();
        let events = &mut self.events;
        let (count, at, pace, last_ip) = (events.count, events.reader.offset(), events.time.pace(), events.last_ip);
        let bits = events.bits & !(u64::MAX << count) | 1 << count;
        let mut taken = Taken { at, packets: 0, used_at: NOWHERE, pace, last_ip, bits, count };
        // Those that are used up are counted by paths.
        events.tnt_bits -= u64::from(std::mem::take(&mut events.count));
        let done = self.hot(&mut sums, &mut taken);
        self.hand_back(&mut taken);
        self.events.tnt_bits += u64::from(taken.count);
        // Where code is not known the next packets may have been read already.
        self.events.reader.seek(taken.at.max(self.events.reader.offset()));
        self.settle(sums);
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
        (events.last_ip, events.bits, events.count) = (taken.last_ip, taken.bits, taken.count);
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

    fn settle(&mut self, mut sums: Sums) {
        sums.fold();
        let [conditional, compressed, calls, returns, instructions] = sums.counts;
        let sum = &mut self.statistics;
        sum.instructions += instructions;
        sum.conditional_branches += conditional;
        sum.compressed_returns += compressed;
        sum.returns += compressed + returns;
        sum.calls += calls;
        self.events.tnt_bits += conditional + compressed;
    }

    /// What no epoch begins in.
    pub(super) fn hot_data(&mut self) -> &'d [u8] {
        while self.epochs.first().is_some_and(|(_, epoch)| epoch == self.epoch)
            && self.epochs.next_up_to(self.events.reader.offset()).is_some()
        {}
        let data = self.events.reader.data();
        &data[..self.epochs.first().map_or(data.len(), |(from, _)| data.len().min(from))]
    }

    #[inline(always)]
    fn hot(&mut self, sums: &mut Sums, taken: &mut Taken) -> Result<(), Fault> {
        let data = self.hot_data();
        let mut leads = Leads::new();
        loop {
            self.use_up(taken, sums);
            let events = &self.events;
            let held = self.pending.is_some() || events.reader.in_block() || events.busy || !self.held.is_empty();
            if taken.count != 0 || held {
                return Ok(());
            }
            let before = *taken;
            let halt = leads.read::<S>(self.code, self.view, data, taken);
            if !leads.all().is_empty() {
                self.hare.rest();
            }
            let mut followed = 0;
            let left = loop {
                let Self { code, returns, sink, view, epoch, .. } = self;
                let mut place = Place { code, returns, sink: &mut **sink, view: *view, epoch: *epoch };
                let (some, left) = place.follow(&leads.all()[followed..], &mut self.at, sums);
                followed += some;
                let Some(left) = left else { break None };
                let Timed { lead, time } = &mut leads.all()[followed];
                *lead = self.run_while_rare(left, *time);
                if *lead == left && (self.is_known(left) || self.find_path(left).is_none()) {
                    break Some(left);
                }
            };
            if let Some(left) = left {
                *taken = before;
                if !self.step_back((followed, left), &mut leads, taken, sums)? {
                    return Ok(());
                }
                continue;
            }
            match halt {
                Halt::Enough => {}
                Halt::Packet => {
                    if !self.pass_system_call(taken, sums) {
                        return Ok(());
                    }
                }
                Halt::Time(packet, size) => {
                    let at = taken.at;
                    taken.at += size;
                    taken.packets += 1;
                    if self.events.take_time_apart(&mut taken.pace, &packet, taken.at) {
                        (self.events.offset, self.events.last_offset) = (at, at);
                        return Ok(());
                    }
                }
                Halt::Target => {
                    if !self.take_target(taken, sums)? {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Only so many leads were followed, and the next one up to what is left of it: goes back to there, and on by the one packet
    /// that needs more. False when that is left to others.
    #[cold]
    #[inline(never)]
    fn step_back(
        &mut self,
        followed: (usize, Lead),
        leads: &mut Leads,
        taken: &mut Taken,
        sums: &mut Sums,
    ) -> Result<bool, Fault> {
        let (followed, left) = followed;
        let data = self.hot_data();
        leads.again::<S>(followed, data, taken);
        if left.told_target().is_none() {
            let of_packet = leads.packet_of::<S>(left.count(), data, taken);
            (taken.bits, taken.count) = (of_packet.0.into(), of_packet.count());
            return Ok(true);
        }
        let Taken { last_ip, used_at, .. } = *taken;
        leads.again::<S>(1, data, taken);
        (taken.at, taken.last_ip, taken.used_at) = (taken.used_at, last_ip, used_at);
        taken.packets -= 1;
        self.take_target(taken, sums)
    }

    /// Goes on by the target ahead. False when that is left to others.
    fn take_target(&mut self, taken: &mut Taken, sums: &mut Sums) -> Result<bool, Fault> {
        match self.target(taken) {
            Some(ip) => self.arrive(ip, taken, sums),
            None => Ok(false),
        }
    }

    /// Uses up branches, but for those that need more than paths.
    fn use_up(&mut self, taken: &mut Taken, sums: &mut Sums) {
        while taken.count != 0 {
            let size = taken.count.min(WINDOW);
            let lead = Lead::branches(taken.bits >> (taken.count - size), size);
            let Some((used, stop)) = self.run_path(lead, sums, taken.pace.now) else { break };
            taken.count -= used;
            taken.bits = taken.bits & !(u64::MAX << taken.count) | 1 << taken.count;
            if used != 0 {
                self.hare.rest();
            }
            if stop == Stop::Other {
                break;
            }
        }
    }

    /// Runs the path that way. `None` when there is none, or nobody knows where its return leads.
    #[inline(never)]
    fn run_path(&mut self, lead: Lead, sums: &mut Sums, now: u64) -> Option<(u32, Stop)> {
        let entry = match self.code.paths.find(self.view, self.at, lead) {
            Some(entry) => entry,
            None => {
                let left = self.run_while_rare(lead, now);
                if left != lead {
                    return Some((lead.count() - left.count(), Stop::Used));
                }
                self.find_path(lead)?;
                self.code.paths.find(self.view, self.at, lead)?
            }
        };
        if self.code.paths.rest(entry).steps != 0 {
            let (mut next, mut returns_to) = (entry.end.block(), None);
            if entry.stop == Stop::Return {
                let Some(Open::Block(call)) = self.returns.peek() else { return None };
                let call = self.code.block(call);
                (next, returns_to) = (call.linked(Way::Next, self.view)?, Some(call.end));
            }
            sums.tally.add(entry.tally);
            sums.paths += 1;
            self.sink.path(&Path::new(self.code, entry, self.epoch, returns_to), now);
            match returns_to {
                Some(_) => self.returns.back_along(entry),
                None => self.returns.along(entry, &self.code.paths),
            }
            self.at = next;
        }
        let found = (lead.count() - u32::from(entry.left), entry.stop);
        if sums.paths > Sums::MOST {
            sums.fold();
        }
        Some(found)
    }

    #[cold]
    fn is_known(&self, lead: Lead) -> bool {
        self.code.paths.find(self.view, self.at, lead).is_some()
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

    /// Takes up the TIP packet in front. `None` when its IP says nothing.
    fn target(&mut self, taken: &mut Taken) -> Option<u64> {
        let events = &mut self.events;
        let data = events.reader.data().get(taken.at..)?;
        let (ip, size) = ip_of(data, taken.last_ip)?;
        taken.last_ip = ip;
        (events.offset, events.last_offset) = (taken.at, taken.at);
        taken.packets += 1;
        taken.at += size;
        Some(ip)
    }

    /// Goes up to the branch that went to `ip`, and on there. False when that branch is not what comes next; the target
    /// is pending then.
    fn arrive(&mut self, ip: u64, taken: &mut Taken, sums: &mut Sums) -> Result<bool, Fault> {
        if let Some(next) = self.code.find_again(self.view, ip) {
            if let Some((_, Stop::Used)) = self.run_path(Lead::target(next), sums, taken.pace.now) {
                self.hare.rest();
                taken.used_at = self.events.offset;
                return Ok(true);
            }
        }
        self.arrive_anew(ip, taken, sums)
    }

    /// The same where the target was not come to for a while, or too many blocks lead to the branch.
    #[cold]
    #[inline(never)]
    fn arrive_anew(&mut self, ip: u64, taken: &mut Taken, sums: &mut Sums) -> Result<bool, Fault> {
        let now = taken.pace.now;
        let kind = loop {
            match self.code.block(self.at).exit {
                Exit::IndirectJump => break BlockKind::IndirectJump,
                Exit::IndirectCall => break BlockKind::IndirectCall,
                Exit::Return => break BlockKind::Return,
                Exit::Jump | Exit::Call | Exit::Linear => {
                    // Runs that are longer than a path are left to where cycles are looked for.
                    let reached = self.run_path(Lead::NONE, sums, now).is_some()
                        && matches!(
                            self.code.block(self.at).exit,
                            Exit::IndirectJump | Exit::IndirectCall | Exit::Return
                        );
                    if !reached {
                        self.pending = Some(Event::Target { ip: Some(ip) });
                        return Ok(false);
                    }
                }
                Exit::Cond | Exit::Far | Exit::FarCall => {
                    self.pending = Some(Event::Target { ip: Some(ip) });
                    return Ok(false);
                }
            }
        };
        let number = self.at;
        let block = self.code.block(number);
        self.statistics.instructions += u64::from(block.instructions);
        match kind {
            BlockKind::Return => {
                self.statistics.returns += 1;
                self.returns.pop();
            }
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
                let events = &mut self.events;
                (taken.pace, taken.last_ip) = (events.time.pace(), events.last_ip);
                (taken.bits, taken.count) = (events.bits, events.count);
                events.tnt_bits -= u64::from(events.count);
                gone?;
            }
        }
        Ok(true)
    }
}

/// Bytes of the packet ahead when it tells nothing but a time, or nothing at all.
#[inline(always)]
pub(super) fn passed_over(ahead: &[u8]) -> Option<usize> {
    let &[first, second, third, ..] = ahead.first_chunk::<ROOM>()?;
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
