//! What a stream says besides the flow: modes, transactions, power, writes by the program, events of the system.

use pt_packet::Execution;

/// Something that happened, told in its place between the blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice {
    pub kind: NoticeKind,
    /// The instruction it is tied to, when a packet says so: the next one to run, or for [`NoticeKind::PtWrite`], which no packet
    /// need say that of, [`NoticeKind::Iret`], [`NoticeKind::UserIret`] and [`NoticeKind::VmEntry`] the one that did it.
    pub ip: Option<u64>,
    /// Nothing happened: a PSB says how things stand.
    pub status: bool,
}

/// Kinds of notices (SDM section "Trace Packets and Data Types").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoticeKind {
    /// The `enabled` that follows is no TIP.PGE: a PSB, an overflow or what follows a loss says where execution is.
    Standing,
    /// Operand and address size of the code from here on.
    ExecutionMode(Execution),
    /// RFLAGS.IF changed.
    InterruptFlag(bool),
    Paging {
        cr3: u64,
        non_root: bool,
    },
    /// From here on true times are within so many TSC ticks of those told, as far as no packets were dropped but those of which
    /// an OVF tells; `None` when nothing bounds them. Without MTC packets that is said of timing packets: what stands between two of them was
    /// between their times.
    Uncertainty(Option<u64>),
    /// Base of the VM control structure in use.
    Vmcs {
        base: u64,
    },
    /// `active` within a transaction; a commit or, with `aborted`, an abort ends it.
    Transaction {
        active: bool,
        aborted: bool,
    },
    PtWrite {
        payload: u64,
        size: u8,
    },
    /// Execution stopped: a core sleeps or changes its clock.
    ExecutionStop,
    Mwait {
        hints: u32,
        extensions: u32,
    },
    PowerEntry {
        state: u8,
        sub_state: u8,
        hardware: bool,
    },
    PowerExit {
        last: u8,
        deepest: u8,
        wake: u8,
    },
    /// Core to bus clock ratio.
    CoreBusRatio(u8),
    /// MNT: of the model, not documented.
    Maintenance(u64),
    /// Tracing ran into a region that ends it.
    TraceStop,
    /// Interrupt or exception; a page fault has the address.
    Interrupt {
        vector: u8,
        address: Option<u64>,
    },
    SoftwareInterrupt {
        vector: u8,
    },
    Iret,
    Smi,
    Rsm,
    Sipi {
        vector: u8,
    },
    Init,
    VmEntry,
    /// With the vector when an interrupt caused it, and the VMCS fields exit reason and exit qualification.
    VmExit {
        vector: Option<u8>,
        reason: Option<u64>,
        qualification: Option<u64>,
    },
    Shutdown,
    UserInterrupt {
        vector: u8,
    },
    UserIret,
    SystemCall,
    /// A CFE of a type the manual does not name.
    OtherEvent {
        kind: u8,
        vector: u8,
    },
    Trigger {
        number: u8,
        multiple: bool,
    },
}

/// Where in the flow a notice belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// At once.
    Here,
    /// Before the instruction at the address.
    Before(u64),
    /// Behind the instruction at the address.
    Behind(u64),
    /// Behind the next PTWRITE.
    PtWrite,
    /// Behind the next instruction that changes CR3.
    Cr3,
    /// Behind the next instruction that changes the VMCS in use.
    Vmcs,
    /// Behind the next branch that takes a packet.
    Branch,
    /// So many instructions behind the last packet that said where execution is.
    After(u16),
}

/// A notice on its way to where it is to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    pub notice: Notice,
    pub place: Place,
    /// The PSB that tells it whenever the flow begins there.
    pub psb: Option<usize>,
}

impl Placed {
    pub fn new(kind: NoticeKind, place: Place) -> Self {
        let ip = match place {
            Place::Before(ip) | Place::Behind(ip) => Some(ip),
            _ => None,
        };
        Placed { notice: Notice { kind, ip, status: false }, place, psb: None }
    }

    pub fn status(kind: NoticeKind) -> Self {
        Placed { notice: Notice { kind, ip: None, status: true }, place: Place::Here, psb: None }
    }

    /// Bound to the FUP that says `ip`.
    pub fn bound(kind: NoticeKind, ip: u64) -> Self {
        let behind =
            matches!(kind, NoticeKind::PtWrite { .. } | NoticeKind::Iret | NoticeKind::UserIret | NoticeKind::VmEntry);
        Placed::new(kind, if behind { Place::Behind(ip) } else { Place::Before(ip) })
    }
}
