//! What follows OVF.

use super::lookahead::{disabled_at, passive, tells_without_fup};
use super::Events;
use crate::event::{Event, Fault};
use crate::notice::{NoticeKind, Place};
use pt_packet::{Packet, Reader, PSB};

impl Events<'_> {
    /// Behind OVF: a FUP when tracing is enabled, anything else when it is not.
    pub(super) fn overflow(&mut self) -> Result<Event, Fault> {
        (self.bits, self.count) = (0, 0);
        self.system.settle_for_overflow();
        self.tell_ready();
        self.tell_waiting_mode();
        match self.told_behind_overflow()? {
            Behind::Enabled => {}
            Behind::Disabled | Behind::Psb => {
                self.queue.push_back((Event::Overflow { ip: None }, None));
                return Ok(self.queued());
            }
            Behind::Needless(end) => {
                while self.reader.offset() < end {
                    let Some(packet) = self.packet()? else { break };
                    match packet {
                        Packet::TipPgd(ip) | Packet::Fup(ip) => drop(self.resolve(ip)),
                        Packet::Pip { cr3, non_root } => self.tell(NoticeKind::Paging { cr3, non_root }, Place::Here),
                        Packet::Vmcs(base) => self.tell(NoticeKind::Vmcs { base }, Place::Here),
                        packet if passive(&packet) || tells_without_fup(&packet) => self.in_passing(&packet),
                        _ => {}
                    }
                }
                self.queue.push_back((Event::Overflow { ip: None }, None));
                return Ok(self.queued());
            }
        }
        let (mut mode, mut transaction) = (None, None);
        loop {
            self.last_offset = self.reader.offset();
            match self.packet()? {
                Some(Packet::Fup(ip) | Packet::Tip(ip)) => {
                    let ip = self.resolve(ip);
                    self.system.settle();
                    self.tell_ready_here();
                    self.queue.push_back((Event::Overflow { ip }, mode));
                    if let (Some(kind), Some(ip)) = (transaction, ip) {
                        self.tell(kind, Place::Before(ip));
                        // The OVF's own FUP is missing.
                        let aborted = matches!(kind, NoticeKind::Transaction { aborted: true, .. });
                        if self.config.errata.skd010 && aborted && self.tip_ahead() {
                            return self.pair(ip);
                        }
                    }
                    return Ok(self.queued());
                }
                Some(Packet::ModeExec { mode: size, interrupt_flag }) => mode = Some((size, interrupt_flag)),
                Some(Packet::ModeTsx { in_transaction: active, aborted }) => {
                    transaction = Some(NoticeKind::Transaction { active, aborted });
                }
                Some(Packet::Pip { cr3, non_root }) => self.tell(NoticeKind::Paging { cr3, non_root }, Place::Here),
                Some(Packet::Vmcs(base)) => self.tell(NoticeKind::Vmcs { base }, Place::Here),
                Some(packet) => self.in_passing(&packet),
                None => return Ok(Event::End),
            }
        }
    }

    /// Where the FUP just read is that of an OVF with a PSB+ between them (SDM table "Compound Packet Event Summary"), the address
    /// that the PSB+ told: it stands right behind one, and belongs to nothing else where nobody saw what was in front of that.
    pub(super) fn resolves_overflow(&mut self) -> Option<Option<u64>> {
        let BehindPsb { psbend, told, is_overflow } = std::mem::take(&mut self.behind_psb);
        if psbend > self.offset || self.system.waits() || self.system.mode.is_some() {
            return None;
        }
        if !is_overflow && matches!(self.deciding(), Ok(Packet::Tip(_) | Packet::TipPgd(_)) | Err(_)) {
            return None;
        }
        let mut between = self.reader.clone();
        between.seek(psbend);
        while between.offset() < self.offset {
            between.read().ok().flatten().filter(passive)?;
        }
        Some(told)
    }

    /// Whether an OVF was seen in front of the PSB+ just read: whoever begins there does not know what its FUP belongs to.
    pub fn is_behind_overflow(&self) -> bool {
        self.behind_psb.is_overflow
    }

    /// Whether the packet stands between an OVF and the one behind it that decides: the end of a PSB+ may, in which the OVF was
    /// (SDM section "Packet Stream Boundary (PSB) Packet").
    pub(super) fn is_amid_overflow(&self) -> bool {
        (self.overflow.from..self.overflow.until).contains(&self.offset)
    }

    /// As `behind_overflow`, which looks at a row of OVFs once.
    fn told_behind_overflow(&mut self) -> Result<Behind, Fault> {
        let at = self.reader.offset();
        if !(self.overflow.from..self.overflow.until).contains(&at) {
            let mut ahead = self.reader.clone();
            let behind = self.behind_overflow(&mut ahead);
            self.overflow = Told { from: at, until: ahead.offset(), behind };
        }
        self.overflow.behind
    }

    /// Looks at what follows OVF, up to the packet that decides.
    fn behind_overflow(&self, ahead: &mut Reader<'_>) -> Result<Behind, Fault> {
        let errata = self.config.errata;
        loop {
            let Some(packet) = ahead.read()? else { return Ok(Behind::Disabled) };
            match packet {
                Packet::Fup(_) => {
                    let needless = errata.apl12 && disabled_at(ahead.clone(), true);
                    return Ok(if needless { Behind::Needless(ahead.offset()) } else { Behind::Enabled });
                }
                Packet::Tip(_) if errata.skd010 => return Ok(Behind::Enabled),
                Packet::TipPgd(_) if errata.skd010 || errata.apl11 => return Ok(Behind::Needless(ahead.offset())),
                Packet::ModeExec { .. } | Packet::ModeTsx { .. } | Packet::Ovf | Packet::Psbend => {}
                packet if errata.skd010 && tells_without_fup(&packet) => {}
                Packet::Psb => return Ok(Behind::Psb),
                _ if passive(&packet) => {}
                _ => return Ok(Behind::Disabled),
            }
        }
    }
}

/// What a FUP behind a PSB+ may belong to.
pub(super) struct BehindPsb {
    pub psbend: usize,
    /// The address in the PSB+.
    pub told: Option<u64>,
    /// The flow comes from an OVF right in front of it.
    pub is_overflow: bool,
}

impl Default for BehindPsb {
    fn default() -> Self {
        BehindPsb { psbend: usize::MAX, told: None, is_overflow: false }
    }
}

/// What was seen behind the OVFs from one offset on up to another.
pub(super) struct Told {
    from: usize,
    until: usize,
    behind: Result<Behind, Fault>,
}

impl Told {
    pub fn leads_to(&self, psb: usize) -> bool {
        matches!(self.behind, Ok(Behind::Psb)) && self.until == psb + PSB.len()
    }
}

impl Default for Told {
    fn default() -> Self {
        Told { from: 0, until: 0, behind: Ok(Behind::Disabled) }
    }
}

/// What the packets behind OVF say.
#[derive(Clone, Copy)]
enum Behind {
    Enabled,
    Disabled,
    /// A PSB+ is to tell.
    Psb,
    /// Disabled, and the packets up to the offset should not be there.
    Needless(usize),
}
