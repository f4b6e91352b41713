//! Packets that come in groups or wait for others.

use super::Events;
use crate::event::{Event, Fault};
use crate::notice::{NoticeKind, Place, Placed};
use pt_packet::Packet;

impl Events<'_> {
    /// The next event, where packets come in groups or wait for others; `packet` is the one just read.
    #[inline(never)]
    pub(super) fn grouped(&mut self, packet: Option<Packet>) -> Result<Event, Fault> {
        let event = self.group(packet);
        self.busy = !self.queue.is_empty() || self.system.waits() || self.system.mode.is_some();
        event
    }

    fn group(&mut self, mut first: Option<Packet>) -> Result<Event, Fault> {
        loop {
            if first.is_none() {
                if !self.queue.is_empty() {
                    return Ok(self.queued());
                }
                self.offset = self.reader.offset();
                self.last_offset = self.offset;
            }
            let packet = match first.take() {
                Some(packet) => packet,
                None => match self.packet()? {
                    Some(packet) => packet,
                    None => {
                        self.system.settle();
                        self.tell_ready();
                        self.tell_waiting_mode();
                        return Ok(self.settled(Event::End));
                    }
                },
            };
            match packet {
                Packet::Tnt { .. } if self.system.holds_branches() => return Err(self.unexpected("TNT")),
                Packet::Tnt { bits, count } => return self.branches(bits, count),
                Packet::Tip(ip) => {
                    let ip = self.resolve(ip);
                    return Ok(self.with_branch(Event::Target { ip }));
                }
                Packet::TipPgd(ip) => {
                    let ip = self.resolve(ip);
                    return Ok(self.with_branch(Event::Disable { ip }));
                }
                Packet::TipPge(ip) => {
                    let ip = self.resolve(ip);
                    return Ok(self.settled(Event::Enable { ip }));
                }
                Packet::Fup(ip) => {
                    let Some(at) = self.resolve(ip) else { return Err(self.unexpected("FUP without IP")) };
                    match self.resolves_overflow() {
                        Some(None) => return Ok(self.settled(Event::Status { ip: Some(at) })),
                        Some(Some(told)) if told == at => continue,
                        _ => {}
                    }
                    if let Some(event) = self.fup(at)? {
                        return Ok(event);
                    }
                }
                Packet::Psb => {
                    let event = self.psb_plus(self.offset)?;
                    self.behind_psb.is_overflow = self.overflow.leads_to(self.offset);
                    self.passed_psb = Some(self.offset);
                    return Ok(event);
                }
                Packet::Ovf => return self.overflow(),
                Packet::Psbend if self.is_amid_overflow() => {}
                Packet::Psbend => return Err(self.unexpected("PSBEND")),
                // For the packet behind those that only tell of something.
                Packet::ModeExec { mode, interrupt_flag } => self.system.mode = Some((mode, interrupt_flag)),
                Packet::Pip { cr3, non_root } => self.tell(NoticeKind::Paging { cr3, non_root }, Place::Cr3),
                Packet::Vmcs(base) => self.tell(NoticeKind::Vmcs { base }, Place::Vmcs),
                packet => {
                    if !self.system.take(&packet) {
                        return Err(self.unexpected(packet.name()));
                    }
                    self.tell_ready();
                }
            }
        }
    }

    /// `event`, behind whatever waits for an address that does not come.
    fn settled(&mut self, event: Event) -> Event {
        let mode = self.system.mode.take();
        if self.system.waits() {
            self.system.settle();
            self.tell_ready();
        }
        self.queue.push_back((event, mode));
        self.queued()
    }

    /// The event of a branch, behind what happened with it.
    fn with_branch(&mut self, event: Event) -> Event {
        if self.system.waits() {
            self.system.settle();
            for placed in std::mem::take(&mut self.system.ready) {
                self.note_in_queue(Placed { place: Place::Branch, ..placed });
            }
        }
        let mode = self.system.mode.take();
        if self.queue.is_empty() {
            self.mode = mode;
            return event;
        }
        self.queue.push_back((event, mode));
        self.queued()
    }
}
