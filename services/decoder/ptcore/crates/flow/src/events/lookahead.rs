//! What the packets ahead are, before they are read.

use super::Events;
use crate::event::Event;
use pt_packet::{Packet, Reader};

/// Of packets that only tell of something, so many are looked past.
const MOST_TOLD: usize = 64;

impl Events<'_> {
    /// The next packet that says where the flow goes. Where there is none, whether one is missing: the stream is damaged in front of
    /// it, or ends behind what belongs to it.
    pub(super) fn deciding(&self) -> Result<Packet, bool> {
        let (mut ahead, mut belongs) = (self.reader.clone(), false);
        loop {
            match ahead.read() {
                Ok(Some(Packet::ModeExec { .. } | Packet::Pip { .. } | Packet::Vmcs(_))) => belongs = true,
                Ok(Some(packet)) if passive(&packet) => {}
                Ok(Some(packet)) => return Ok(packet),
                Ok(None) => return Err(belongs),
                Err(_) => return Err(true),
            }
        }
    }

    /// The address of that one if it is a FUP, and nothing else comes before.
    pub fn fup_ahead(&self) -> Option<u64> {
        match self.deciding() {
            Ok(Packet::Fup(ip)) if !self.busy => ip.resolve(self.last_ip),
            _ => None,
        }
    }

    /// The address of the TIP.PGD that comes next, where what is in front of it only tells of something.
    pub fn disable_ahead(&self) -> Option<Option<u64>> {
        match self.queue.back() {
            Some(&(Event::Disable { ip }, _)) => return Some(ip),
            Some(&(event, _)) if event != Event::Note => return None,
            _ => {}
        }
        let mut ahead = self.reader.clone();
        for _ in 0..MOST_TOLD {
            match ahead.read() {
                Ok(Some(Packet::TipPgd(ip))) => return Some(ip.resolve(self.last_ip)),
                Ok(Some(packet)) if passive(&packet) || tells_without_fup(&packet) => {}
                _ => break,
            }
        }
        None
    }

    /// Whether that is a TIP or TIP.PGD, or would have been one.
    pub(super) fn tip_ahead(&self) -> bool {
        match self.deciding() {
            Ok(packet) => matches!(packet, Packet::Tip(_) | Packet::TipPgd(_)),
            Err(is_missing) => is_missing,
        }
    }
}

/// Whether tracing is disabled where `ahead` stands: it is enabled next, or a PSB+ without address follows. `told`: packets that
/// come while it is disabled, too, may be between.
pub(super) fn disabled_at(mut ahead: Reader<'_>, told: bool) -> bool {
    let (mut status, mut bound) = (false, false);
    while let Ok(Some(packet)) = ahead.read() {
        match packet {
            Packet::TipPge(_) => return true,
            Packet::Psb => status = true,
            Packet::Psbend if status => return true,
            Packet::ModeExec { .. } | Packet::ModeTsx { .. } => {}
            Packet::TraceStop if told => return true,
            Packet::Fup(_) if bound => bound = false,
            Packet::Mwait { .. } if told => {}
            Packet::Exstop { fup }
            | Packet::Ptw { fup, .. }
            | Packet::Cfe { fup, .. }
            | Packet::Trig { fup, .. }
            | Packet::Bep { fup }
                if told =>
            {
                bound |= fup;
            }
            _ if passive(&packet) => {}
            _ => return false,
        }
    }
    false
}

/// Whether a packet that is not passive has no FUP, and says nothing of the flow.
pub(super) fn tells_without_fup(packet: &Packet) -> bool {
    matches!(
        packet,
        Packet::Exstop { fup: false }
            | Packet::Ptw { fup: false, .. }
            | Packet::Cfe { fup: false, .. }
            | Packet::Trig { fup: false, .. }
            | Packet::Mwait { .. }
    )
}

/// Packets that may stand between the parts of one event.
pub(super) fn passive(packet: &Packet) -> bool {
    matches!(
        packet,
        Packet::Pad
            | Packet::Cbr { .. }
            | Packet::Tsc(_)
            | Packet::Tma { .. }
            | Packet::Mtc(_)
            | Packet::Cyc(_)
            | Packet::Pip { .. }
            | Packet::Vmcs(_)
            | Packet::Mnt(_)
            | Packet::Pwre { .. }
            | Packet::Pwrx { .. }
            | Packet::Evd { .. }
            | Packet::Bip { .. }
            | Packet::Bbp { .. }
            | Packet::Invalid
    )
}
