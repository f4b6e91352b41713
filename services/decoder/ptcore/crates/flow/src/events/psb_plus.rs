//! PSB+: the packets from PSB to PSBEND.

use super::lookahead::{disabled_at, passive};
use super::overflow::BehindPsb;
use super::Events;
use crate::event::{Event, Fault};
use crate::notice::{NoticeKind, Place, Placed};
use crate::Reason;
use pt_packet::Packet;

impl Events<'_> {
    /// The packets from behind PSB to PSBEND.
    pub(super) fn psb_plus(&mut self, psb: usize) -> Result<Event, Fault> {
        self.last_ip = 0;
        self.system.settle();
        self.tell_ready();
        self.within_psb = Some(psb);
        let event = self.up_to_psbend(psb);
        self.within_psb = None;
        event
    }

    fn up_to_psbend(&mut self, psb: usize) -> Result<Event, Fault> {
        let (mut enabled_at, mut mode) = (None, None);
        loop {
            self.last_offset = self.reader.offset();
            let Some(packet) = self.packet()? else {
                return Err(Fault { offset: psb, reason: Reason::TruncatedPacket });
            };
            let kind = match packet {
                Packet::Psbend => break,
                Packet::Fup(ip) => {
                    enabled_at = self.resolve(ip);
                    continue;
                }
                Packet::ModeExec { mode: size, interrupt_flag } => {
                    mode = Some((size, interrupt_flag));
                    continue;
                }
                Packet::Ovf => {
                    (self.offset, self.within_psb) = (self.last_offset, None);
                    return self.overflow();
                }
                Packet::ModeTsx { in_transaction: active, aborted } => NoticeKind::Transaction { active, aborted },
                Packet::Pip { cr3, non_root } => NoticeKind::Paging { cr3, non_root },
                Packet::Vmcs(base) => NoticeKind::Vmcs { base },
                Packet::Cbr { ratio } => NoticeKind::CoreBusRatio(ratio),
                Packet::Mnt(payload) => {
                    self.tell(NoticeKind::Maintenance(payload), Place::Here);
                    continue;
                }
                // Nobody goes on from here. Where the first one has no end the others up to this one have none either.
                Packet::Psb => {
                    self.psb_at = usize::MAX;
                    self.endless_psb = self.last_offset;
                    self.within_psb = Some(self.last_offset);
                    // What ran between the two is not known.
                    (enabled_at, mode, self.last_ip) = (None, None, 0);
                    continue;
                }
                _ if passive(&packet) => continue,
                _ => return Err(self.unexpected_at(self.last_offset, packet.name())),
            };
            self.note_in_queue(Placed::status(kind));
        }
        if self.config.errata.bdm70 && enabled_at.is_some() && disabled_at(self.reader.clone(), false) {
            enabled_at = None;
        }
        // What the PSB+ says is complete: a mode that waits is told where that says the same.
        let waiting = self.system.mode.take().filter(|&waiting| mode.is_none_or(|mode| mode == waiting));
        if let Some(waiting) = waiting {
            self.within_psb = None;
            self.tell_mode(waiting, enabled_at.map_or(Place::Here, Place::Before));
        }
        self.behind_psb = BehindPsb { psbend: self.reader.offset(), told: enabled_at, is_overflow: false };
        self.queue.push_back((Event::Status { ip: enabled_at }, mode));
        Ok(self.queued())
    }
}
