//! Where libipt takes compressed returns.
//!
//! Each near return takes its call from the stack (SDM section "Indirect Transfer Compression for Returns"). libipt takes none
//! for a return of which a TIP tells the target, so that the next compressed one goes elsewhere. Which returns those are the
//! packets say: they are followed along what the flow tells. Nor does it empty its stack at a PSB.

use pt_flow::BlockKind;
use pt_packet::{find_psb, Packet, Reader};

/// Entries the processor keeps, and libipt.
const DEPTH: usize = 64;

/// The addresses behind calls that were not returned from: here, and as libipt has them. Each with what the flow had
/// taken up of the stream when the call ran.
pub struct Returns<'s> {
    calls: Vec<(u64, usize)>,
    libipts: Vec<(u64, usize)>,
    /// Behind the last packet that the flow took up.
    packets: Reader<'s>,
    /// Branches of the last TNT that the flow did not take up.
    branches: u8,
}

impl<'s> Returns<'s> {
    pub fn new(stream: &'s [u8]) -> Self {
        Returns { calls: Vec::new(), libipts: Vec::new(), packets: Reader::new(stream), branches: 0 }
    }

    pub fn call(&mut self, behind: u64) {
        for calls in [&mut self.calls, &mut self.libipts] {
            calls.push((behind, self.packets.offset()));
            calls.drain(..calls.len().saturating_sub(DEPTH));
        }
    }

    /// Takes up the packet that the branch needed. Where libipt takes a return to `target`, if that is elsewhere.
    pub fn branch(&mut self, kind: BlockKind, target: u64) -> Option<u64> {
        match kind {
            BlockKind::Linear | BlockKind::Jump | BlockKind::Call => None,
            BlockKind::CondTaken | BlockKind::CondNotTaken => {
                self.takes_branch();
                None
            }
            BlockKind::Return => {
                let call = self.calls.pop().map(|(behind, _)| behind);
                if !self.takes_branch() {
                    self.takes_target();
                    return None;
                }
                let (libipts, _) = self.libipts.pop()?;
                (call == Some(target) && libipts != target).then_some(libipts)
            }
            _ => {
                self.takes_target();
                None
            }
        }
    }

    /// Where libipt takes a compressed return at the offset, if all calls that are left here are from before a PSB.
    pub fn behind_psb(&self, offset: usize) -> Option<u64> {
        let is_old = |&(_, at): &(u64, usize)| find_psb(self.packets.data(), at).is_some_and(|psb| psb < offset);
        let (libipts, _) = self.libipts.last()?;
        self.calls.last().is_none_or(is_old).then_some(*libipts)
    }

    fn takes_branch(&mut self) -> bool {
        if self.branches == 0 {
            let mut ahead = self.packets.clone();
            let Some(Packet::Tnt { count, .. }) = of_flow(&mut ahead) else { return false };
            (self.packets, self.branches) = (ahead, count);
        }
        self.branches -= 1;
        true
    }

    /// A TNT may stand in front of the TIP (SDM section "Deferred TIPs").
    fn takes_target(&mut self) {
        let (mut ahead, mut branches) = (self.packets.clone(), self.branches);
        let mut packet = of_flow(&mut ahead);
        if let (Some(Packet::Tnt { count, .. }), 0) = (packet, branches) {
            (branches, packet) = (count, of_flow(&mut ahead));
        }
        if let Some(Packet::Tip(_)) = packet {
            (self.packets, self.branches) = (ahead, branches);
        }
    }

    /// Takes up the packets up to the next that is `last`.
    pub fn take_up_to(&mut self, last: fn(&Packet) -> bool) {
        self.branches = 0;
        while of_flow(&mut self.packets).is_some_and(|packet| !last(&packet)) {}
    }

    pub fn overflow(&mut self, offset: usize) {
        self.calls.clear();
        self.go_on_at(offset);
    }

    /// libipt begins anew at a PSB too.
    pub fn loss(&mut self, end: usize) {
        self.calls.clear();
        self.libipts.clear();
        self.go_on_at(end);
    }

    fn go_on_at(&mut self, offset: usize) {
        self.packets.seek(offset);
        self.branches = 0;
    }
}

/// The next packet that says where the flow goes; a FUP says so with the one behind it.
fn of_flow(packets: &mut Reader<'_>) -> Option<Packet> {
    loop {
        match packets.read() {
            Ok(Some(packet @ (Packet::Tnt { .. } | Packet::Tip(_) | Packet::TipPge(_) | Packet::TipPgd(_)))) => {
                return Some(packet)
            }
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => return None,
        }
    }
}
