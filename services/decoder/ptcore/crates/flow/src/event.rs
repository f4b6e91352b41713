//! Events: what a walk along the code has to react to.

use crate::Reason;
use pt_packet::{Error, ErrorKind, Execution};

/// What happens next, as packets tell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Branches were put into `Events::bits`.
    Branches,
    Target {
        ip: Option<u64>,
    },
    /// Synchronous: by the next far transfer, or the next branch that can go to `ip`.
    Disable {
        ip: Option<u64>,
    },
    AsyncBranch {
        from: u64,
        to: Option<u64>,
    },
    AsyncDisable {
        at: u64,
        ip: Option<u64>,
    },
    Enable {
        ip: Option<u64>,
    },
    /// `ip` is where tracing goes on, `None` when it is disabled by then.
    Overflow {
        ip: Option<u64>,
    },
    /// PSB+ was passed; `ip` when tracing is enabled there.
    Status {
        ip: Option<u64>,
    },
    /// `Events::note` is to be told.
    Note,
    End,
}

impl Event {
    pub fn packet_name(&self) -> &'static str {
        match self {
            Event::Branches => "TNT",
            Event::Target { .. } => "TIP",
            Event::Disable { .. } => "TIP.PGD",
            Event::AsyncBranch { .. } => "FUP with TIP",
            Event::AsyncDisable { .. } => "FUP with TIP.PGD",
            Event::Enable { .. } => "TIP.PGE",
            Event::Overflow { .. } => "OVF",
            Event::Status { .. } => "PSB",
            Event::Note => "a packet tied to the code",
            Event::End => "the end of the stream",
        }
    }
}

/// Decoding cannot go on at `offset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    pub offset: usize,
    pub reason: Reason,
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        let reason = match error.kind {
            ErrorKind::Unknown => Reason::UnknownPacket(error.bytes),
            ErrorKind::Truncated => Reason::TruncatedPacket,
        };
        Fault { offset: error.offset, reason }
    }
}

/// MODE.Exec: code size and interrupt flag.
pub type Mode = (Execution, bool);
