//! FUP packets: for what waits for an address, or with the TIP that belongs to it.

use super::lookahead::passive;
use super::Events;
use crate::event::{Event, Fault};
use crate::notice::{NoticeKind, Place};
use pt_packet::Packet;

impl Events<'_> {
    /// A FUP: for what waits for one, or with the TIP that belongs to it. `None` when nobody is to be told of it.
    pub(super) fn fup(&mut self, at: u64) -> Result<Option<Event>, Fault> {
        let at = self.copied.take().unwrap_or(at);
        if let Some(mode) = self.system.mode.take() {
            if self.system.alone() {
                self.system.bind(at);
                self.tell_ready();
            }
            self.tell_mode(mode, Place::Before(at));
            return Ok(Some(self.queued()));
        }
        let alone = self.system.alone();
        let paired = self.system.paired() && self.tip_ahead();
        self.system.bind(at);
        self.tell_ready();
        if alone && !paired {
            return Ok((!self.queue.is_empty()).then(|| self.queued()));
        }
        self.pair(at).map(Some)
    }

    /// FUP with the TIP or TIP.PGD that belongs to it, which an overflow may have taken.
    pub(super) fn pair(&mut self, at: u64) -> Result<Event, Fault> {
        let (mut mode, mut paging, mut vmcs, mut overflows) = (None, None, None, false);
        let event = loop {
            self.last_offset = self.reader.offset();
            match self.packet() {
                Ok(Some(Packet::Tip(ip))) => break Ok(Event::AsyncBranch { from: at, to: self.resolve(ip) }),
                Ok(Some(Packet::TipPgd(ip))) => break Ok(Event::AsyncDisable { at, ip: self.resolve(ip) }),
                // A stream may end between the two, or packets be lost: the flow is known up to here.
                Ok(None) => break Ok(Event::AsyncDisable { at, ip: None }),
                Ok(Some(Packet::ModeExec { mode: size, interrupt_flag })) => mode = Some((size, interrupt_flag)),
                Ok(Some(Packet::Pip { cr3, non_root })) => paging = Some(NoticeKind::Paging { cr3, non_root }),
                Ok(Some(Packet::Vmcs(base))) => vmcs = Some(NoticeKind::Vmcs { base }),
                Ok(Some(packet)) if passive(&packet) => self.in_passing(&packet),
                Ok(Some(Packet::Ovf)) => {
                    overflows = true;
                    break Ok(Event::AsyncDisable { at, ip: None });
                }
                Ok(Some(packet)) => break Err(self.unexpected_at(self.last_offset, packet.name())),
                Err(fault) => break Err(fault),
            }
        };
        match (event, mode) {
            (Ok(event), mode) => self.queue.push_back((event, mode)),
            (Err(_), Some(mode)) => self.tell_mode(mode, Place::Here),
            (Err(_), None) => {}
        }
        for kind in [vmcs, paging].into_iter().flatten() {
            self.tell(kind, Place::Here);
        }
        if overflows {
            self.offset = self.last_offset;
            return self.overflow();
        }
        event.map(|_| self.queued())
    }

    /// Tells of a packet that nothing else depends on.
    pub(super) fn in_passing(&mut self, packet: &Packet) {
        if self.system.take(packet) {
            self.tell_ready_here();
        }
    }
}
