//! What the packets ahead are, before they are read.

use super::Events;
use pt_packet::{Packet, Reader};

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

    /// Whether that is a TIP or TIP.PGD, or would have been one.
    pub(super) fn tip_ahead(&self) -> bool {
        match self.deciding() {
            Ok(packet) => matches!(packet, Packet::Tip(_) | Packet::TipPgd(_)),
            Err(is_missing) => is_missing,
        }
    }
}

/// Whether tracing is disabled where `ahead` stands: it is enabled next, or a PSB+ without address follows.
pub(super) fn disabled_at(mut ahead: Reader<'_>) -> bool {
    let mut status = false;
    while let Ok(Some(packet)) = ahead.read() {
        match packet {
            Packet::TipPge(_) => return true,
            Packet::Psb => status = true,
            Packet::Psbend if status => return true,
            Packet::ModeExec { .. } | Packet::ModeTsx { .. } => {}
            _ if passive(&packet) => {}
            _ => return false,
        }
    }
    false
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
