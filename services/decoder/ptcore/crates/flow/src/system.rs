//! What the system did, from packets that come in groups: MWAIT PWRE EXSTOP, EVD CFE, and each with a FUP or without.

use crate::event::Mode;
use crate::notice::{NoticeKind, Place, Placed};
use pt_packet::Packet;

/// A group that never ends is told as it stands after so many packets.
const MOST: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Binding {
    /// To the next FUP, which is there for it alone.
    Fup,
    /// To the next FUP, which may also have its TIP.
    FupAndTip,
    /// To whatever comes: a FUP with its TIP, a TIP, TIP.PGE or TIP.PGD.
    Any,
    /// To nothing; told behind those that are bound.
    Nothing,
    /// To EXSTOP, which decides.
    ExecutionStop,
}

/// Collects what is not complete yet.
#[derive(Debug, Default)]
pub struct System {
    waiting: Vec<(NoticeKind, Binding)>,
    /// Complete, in order.
    pub ready: Vec<Placed>,
    /// MODE.Exec that waits for what follows it.
    pub mode: Option<Mode>,
    data: EventData,
}

/// EVD payloads that belong to the next CFE.
#[derive(Clone, Copy, Debug, Default)]
struct EventData {
    fault_address: Option<u64>,
    qualification: Option<u64>,
    reason: Option<u64>,
}

impl System {
    pub fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Takes one packet in; false when it does not fit those before.
    pub fn take(&mut self, packet: &Packet) -> bool {
        if self.waiting.len() >= MOST {
            self.settle();
        }
        match *packet {
            Packet::ModeTsx { in_transaction: active, aborted } => {
                let binding = if aborted { Binding::Any } else { Binding::Fup };
                self.wait(NoticeKind::Transaction { active, aborted }, binding);
            }
            Packet::Ptw { payload, size, fup } => {
                let kind = NoticeKind::PtWrite { payload, size };
                if fup {
                    self.wait(kind, Binding::Fup);
                } else {
                    self.settle();
                    self.ready.push(Placed::new(kind, Place::PtWrite));
                }
            }
            Packet::Mwait { hints, extensions } => {
                self.settle();
                self.wait(NoticeKind::Mwait { hints, extensions }, Binding::ExecutionStop);
            }
            Packet::Pwre { state, sub_state, hardware } => {
                let kind = NoticeKind::PowerEntry { state, sub_state, hardware };
                self.wait(kind, Binding::Nothing);
            }
            Packet::Pwrx { last, deepest, wake } => {
                self.settle();
                self.ready.push(Placed::new(NoticeKind::PowerExit { last, deepest, wake }, Place::Here));
            }
            Packet::Exstop { fup } => self.execution_stop(fup),
            Packet::Cbr { ratio } => self.ready.push(Placed::new(NoticeKind::CoreBusRatio(ratio), Place::Here)),
            Packet::Mnt(payload) => self.ready.push(Placed::new(NoticeKind::Maintenance(payload), Place::Here)),
            Packet::TraceStop => {
                self.settle();
                self.ready.push(Placed::new(NoticeKind::TraceStop, Place::Here));
            }
            Packet::Evd { kind, payload } => return self.event_data(kind, payload),
            Packet::Cfe { kind, vector, fup } => return self.event(kind, vector, fup),
            Packet::Trig { number, instructions, multiple, fup } => {
                let kind = NoticeKind::Trigger { number, multiple };
                if fup {
                    self.wait(kind, Binding::Fup);
                } else {
                    self.settle();
                    let place = instructions.map_or(Place::Here, Place::After);
                    self.ready.push(Placed::new(kind, place));
                }
            }
            // A group of PEBS data says nothing of the flow; its FUP must not be taken for an interrupt.
            Packet::Bep { fup: true } => {
                self.wait(NoticeKind::Standing, Binding::Fup);
            }
            _ => {}
        }
        true
    }

    fn wait(&mut self, kind: NoticeKind, binding: Binding) {
        self.waiting.push((kind, binding));
    }

    /// EXSTOP: what it belongs to is known now, and with it comes first.
    fn execution_stop(&mut self, fup: bool) {
        for (_, binding) in &mut self.waiting {
            if *binding == Binding::ExecutionStop {
                *binding = Binding::Fup;
            }
        }
        let at = self.waiting.iter().position(|&(_, binding)| binding == Binding::Nothing);
        let at = at.unwrap_or(self.waiting.len());
        self.waiting.insert(at, (NoticeKind::ExecutionStop, Binding::Fup));
        if !fup {
            self.settle();
        }
    }

    /// EVD types: 0 the address of a page fault, 1 VM exit qualification, 2 VM exit reason.
    fn event_data(&mut self, kind: u8, payload: u64) -> bool {
        let data = &mut self.data;
        let vm_exit = data.qualification.is_some() || data.reason.is_some();
        match kind {
            0 if !vm_exit => data.fault_address = Some(payload),
            1 if data.fault_address.is_none() => data.qualification = Some(payload),
            2 if data.fault_address.is_none() => data.reason = Some(payload),
            0..=2 => return false,
            _ => {}
        }
        true
    }

    /// CFE types (SDM table "CFE Packet Type and Vector Fields").
    fn event(&mut self, kind: u8, vector: u8, fup: bool) -> bool {
        let EventData { fault_address, qualification, reason } = std::mem::take(&mut self.data);
        let exits = matches!(kind, 8 | 9);
        if fault_address.is_some() && kind != 1 || (qualification.is_some() || reason.is_some()) && !exits {
            return false;
        }
        let (kind, binding) = match kind {
            1 => (NoticeKind::Interrupt { vector, address: fault_address }, Binding::FupAndTip),
            2 => (NoticeKind::Iret, Binding::Fup),
            3 => (NoticeKind::Smi, Binding::FupAndTip),
            4 => (NoticeKind::Rsm, Binding::FupAndTip),
            5 => (NoticeKind::Sipi { vector }, Binding::FupAndTip),
            6 => (NoticeKind::Init, Binding::FupAndTip),
            7 => (NoticeKind::VmEntry, Binding::Fup),
            8 => (NoticeKind::VmExit { vector: None, reason, qualification }, Binding::FupAndTip),
            9 => (NoticeKind::VmExit { vector: Some(vector), reason, qualification }, Binding::FupAndTip),
            10 => (NoticeKind::Shutdown, Binding::FupAndTip),
            12 => (NoticeKind::UserInterrupt { vector }, Binding::FupAndTip),
            13 => (NoticeKind::UserIret, Binding::Fup),
            14 => (NoticeKind::SoftwareInterrupt { vector }, Binding::FupAndTip),
            15 => (NoticeKind::SystemCall, Binding::FupAndTip),
            kind => (NoticeKind::OtherEvent { kind, vector }, Binding::FupAndTip),
        };
        if fup {
            // One FUP may be there for several; that of a PTWRITE has the address of the instruction itself.
            self.settle_but(|kind, binding| {
                matches!(binding, Binding::Fup | Binding::FupAndTip) && !matches!(kind, NoticeKind::PtWrite { .. })
            });
        } else {
            self.settle();
        }
        self.wait(kind, if fup { binding } else { Binding::Any });
        true
    }

    /// Whether the next FUP is there for what waits, with or without a TIP.
    pub fn alone(&self) -> bool {
        self.waiting.iter().any(|&(_, binding)| matches!(binding, Binding::Fup | Binding::FupAndTip))
    }

    /// Whether no branch can be in front of what comes for something that waits: its FUP, or where an abort leads.
    pub fn holds_branches(&self) -> bool {
        self.alone() || self.waiting.iter().any(|(kind, _)| matches!(kind, NoticeKind::Transaction { .. }))
    }

    /// Whether the next FUP may nevertheless have its TIP.
    pub fn paired(&self) -> bool {
        let with_tip = self.waiting.iter().any(|&(_, binding)| binding == Binding::FupAndTip);
        with_tip || !self.waiting.iter().any(|&(_, binding)| binding == Binding::Fup)
    }

    /// A FUP says where what waits happened.
    pub fn bind(&mut self, at: u64) {
        for (kind, binding) in self.waiting.drain(..) {
            if kind == NoticeKind::Standing {
                continue;
            }
            let placed = match binding {
                Binding::Nothing | Binding::ExecutionStop => Placed::new(kind, Place::Here),
                _ => Placed::bound(kind, at),
            };
            self.ready.push(placed);
        }
    }

    /// Nothing says where what waits happened.
    pub fn settle(&mut self) {
        self.settle_but(|_, _| false);
        self.data = EventData::default();
    }

    fn settle_but(&mut self, waits: impl Fn(NoticeKind, Binding) -> bool) {
        self.waiting.retain(|&(kind, binding)| {
            let waits = waits(kind, binding);
            if !waits && kind != NoticeKind::Standing {
                self.ready.push(Placed::new(kind, Place::Here));
            }
            waits
        });
    }

    /// The FUP for what waits was lost: that happened last.
    pub fn settle_for_overflow(&mut self) {
        self.waiting.sort_by_key(|&(_, binding)| binding == Binding::Fup);
        self.settle();
    }
}
