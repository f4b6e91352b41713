//! Stretches of a stream that yielded no flow, and why.

use std::fmt;

/// Why the flow ended where it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Bytes before the first PSB.
    BeforeFirstPsb,
    /// Packets are missing that the stream had: whoever recorded says so.
    MissingPackets,
    /// Bytes that are no packet.
    UnknownPacket([u8; 4]),
    /// The stream ends inside a packet.
    TruncatedPacket,
    /// No code is known at the address.
    NoCode,
    /// No code of the kernel is known where a program went into it, and nothing that the program itself ran is lost: the
    /// loss stands between the `disabled` and the `enabled` that would be told if the program alone was traced.
    NoKernelCode,
    /// The bytes at the address are no instruction.
    BadInstruction,
    /// The packet (by its name) does not fit the code at the address.
    UnexpectedPacket(&'static str),
    /// A compressed return without its call.
    EmptyReturnStack,
    /// A compressed return that says "not taken".
    BadReturn,
    /// A branch target is needed, the packet has none.
    SuppressedTarget,
    /// Direct jumps lead back to themselves without any packet.
    EndlessLoop,
    /// A PSB says that execution is elsewhere, or in another mode.
    BadStatus,
    /// Conditional branches are not traced: no packets are lost, and it is no error.
    NotTraced,
}

impl Reason {
    /// A short stable name.
    pub fn name(&self) -> &'static str {
        match self {
            Reason::BeforeFirstPsb => "before-first-psb",
            Reason::MissingPackets => "missing-packets",
            Reason::UnknownPacket(_) => "unknown-packet",
            Reason::TruncatedPacket => "truncated-packet",
            Reason::NoCode => "no-code",
            Reason::NoKernelCode => "no-kernel-code",
            Reason::BadInstruction => "bad-instruction",
            Reason::UnexpectedPacket(_) => "unexpected-packet",
            Reason::EmptyReturnStack => "empty-return-stack",
            Reason::BadReturn => "bad-return",
            Reason::SuppressedTarget => "suppressed-target",
            Reason::EndlessLoop => "endless-loop",
            Reason::BadStatus => "bad-status",
            Reason::NotTraced => "not-traced",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::BeforeFirstPsb => f.write_str("no synchronization point before"),
            Reason::MissingPackets => f.write_str("the recorder lost packets here"),
            Reason::UnknownPacket([a, b, c, d]) => write!(f, "no packet begins with {a:02x} {b:02x} {c:02x} {d:02x}"),
            Reason::TruncatedPacket => f.write_str("the stream ends inside a packet"),
            Reason::NoCode => f.write_str("no code is known at the address"),
            Reason::NoKernelCode => f.write_str("no code of the kernel is known at the address"),
            Reason::BadInstruction => f.write_str("the bytes at the address are no instruction"),
            Reason::UnexpectedPacket(name) => write!(f, "{name} does not fit the code at the address"),
            Reason::EmptyReturnStack => f.write_str("a compressed return without its call"),
            Reason::BadReturn => f.write_str("a compressed return that is not taken"),
            Reason::SuppressedTarget => f.write_str("a branch target is suppressed"),
            Reason::BadStatus => f.write_str("a PSB says that execution is elsewhere"),
            Reason::NotTraced => f.write_str("conditional branches are not traced"),
            Reason::EndlessLoop => f.write_str("direct jumps lead back to themselves without a packet"),
        }
    }
}

/// A stretch that was recorded but yielded no flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Stream offset where decoding stopped.
    pub offset: usize,
    /// Bytes from there to where decoding went on.
    pub size: usize,
    pub reason: Reason,
    /// Where the flow stood, 0 when unknown.
    pub address: u64,
    /// The epoch of the code image it stood in.
    pub epoch: u32,
    /// Times before and behind the stretch.
    pub tsc0: u64,
    pub tsc1: u64,
}

impl Loss {
    /// Whether what the thread ran may be lost, rather than only what the kernel ran for it.
    pub fn is_of_program(&self) -> bool {
        self.reason != Reason::NoKernelCode
    }
}
