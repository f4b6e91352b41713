//! What a packet says.

/// How many bytes of an instruction pointer a packet carries and how they complete the last one.
///
/// SDM table "FUP/TIP IP Reconstruction".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Compression {
    Suppressed = 0,
    Update16 = 1,
    Update32 = 2,
    SignExtend48 = 3,
    Update48 = 4,
    Full = 6,
}

impl Compression {
    /// By the three bits of the packet's first byte; `None` for those that are reserved.
    #[inline(always)]
    pub fn of(bits: u8) -> Option<Compression> {
        Some(match bits {
            0 => Compression::Suppressed,
            1 => Compression::Update16,
            2 => Compression::Update32,
            3 => Compression::SignExtend48,
            4 => Compression::Update48,
            6 => Compression::Full,
            _ => return None,
        })
    }
}

/// The instruction pointer of a TIP, TIP.PGE, TIP.PGD or FUP packet as it stands in the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ip {
    pub compression: Compression,
    pub payload: u64,
}

impl Ip {
    pub const SUPPRESSED: Ip = Ip { compression: Compression::Suppressed, payload: 0 };

    /// The whole address, completed by the address of the last packet that had one; `None` when suppressed.
    #[inline(always)]
    pub fn resolve(self, last: u64) -> Option<u64> {
        Some(match self.compression {
            Compression::Suppressed => return None,
            Compression::Update16 => last & !0xffff | self.payload,
            Compression::Update32 => last & !0xffff_ffff | self.payload,
            Compression::SignExtend48 => ((self.payload << 16) as i64 >> 16) as u64,
            Compression::Update48 => last & !0xffff_ffff_ffff | self.payload,
            Compression::Full => self.payload,
        })
    }
}

/// Operand and address size of the code (MODE.Exec: CS.L and CS.D).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Execution {
    Bits16,
    Bits32,
    Bits64,
}

/// One packet. Payloads keep the width and the meaning they have in the manual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet {
    Pad,
    Psb,
    Psbend,
    /// `count` branches, the oldest in bit `count - 1`; 1 is taken.
    Tnt {
        bits: u64,
        count: u8,
    },
    Tip(Ip),
    TipPge(Ip),
    TipPgd(Ip),
    Fup(Ip),
    /// CR3 with its low 5 bits zero.
    Pip {
        cr3: u64,
        non_root: bool,
    },
    ModeExec {
        mode: Execution,
        interrupt_flag: bool,
    },
    ModeTsx {
        in_transaction: bool,
        aborted: bool,
    },
    TraceStop,
    Cbr {
        ratio: u8,
    },
    /// The low 56 bits of the time stamp counter.
    Tsc(u64),
    Mtc(u8),
    Tma {
        ctc: u16,
        fast_counter: u16,
    },
    Cyc(u64),
    /// VMCS base address, low 12 bits zero.
    Vmcs(u64),
    Ovf,
    Mnt(u64),
    Ptw {
        payload: u64,
        size: u8,
        fup: bool,
    },
    Exstop {
        fup: bool,
    },
    Mwait {
        hints: u32,
        extensions: u32,
    },
    Pwre {
        state: u8,
        sub_state: u8,
        hardware: bool,
    },
    Pwrx {
        last: u8,
        deepest: u8,
        wake: u8,
    },
    Cfe {
        kind: u8,
        vector: u8,
        fup: bool,
    },
    Evd {
        kind: u8,
        payload: u64,
    },
    /// Start of a block of BIP packets of `size` payload bytes each.
    Bbp {
        kind: u8,
        size: u8,
    },
    Bip {
        id: u8,
        payload: u64,
    },
    Bep {
        fup: bool,
    },
    /// A trigger hit, `instructions` after the last packet that said where execution is.
    Trig {
        number: u8,
        instructions: Option<u16>,
        multiple: bool,
        fup: bool,
    },
    /// A packet that an erratum of the processor spoiled.
    Invalid,
}

impl Packet {
    /// The manual's name.
    pub fn name(&self) -> &'static str {
        match self {
            Packet::Pad => "PAD",
            Packet::Psb => "PSB",
            Packet::Psbend => "PSBEND",
            Packet::Tnt { .. } => "TNT",
            Packet::Tip(_) => "TIP",
            Packet::TipPge(_) => "TIP.PGE",
            Packet::TipPgd(_) => "TIP.PGD",
            Packet::Fup(_) => "FUP",
            Packet::Pip { .. } => "PIP",
            Packet::ModeExec { .. } => "MODE.Exec",
            Packet::ModeTsx { .. } => "MODE.TSX",
            Packet::TraceStop => "TraceStop",
            Packet::Cbr { .. } => "CBR",
            Packet::Tsc(_) => "TSC",
            Packet::Mtc(_) => "MTC",
            Packet::Tma { .. } => "TMA",
            Packet::Cyc(_) => "CYC",
            Packet::Vmcs(_) => "VMCS",
            Packet::Ovf => "OVF",
            Packet::Mnt(_) => "MNT",
            Packet::Ptw { .. } => "PTW",
            Packet::Exstop { .. } => "EXSTOP",
            Packet::Mwait { .. } => "MWAIT",
            Packet::Pwre { .. } => "PWRE",
            Packet::Pwrx { .. } => "PWRX",
            Packet::Cfe { .. } => "CFE",
            Packet::Evd { .. } => "EVD",
            Packet::Bbp { .. } => "BBP",
            Packet::Bip { .. } => "BIP",
            Packet::Bep { .. } => "BEP",
            Packet::Trig { .. } => "TRIG",
            Packet::Invalid => "invalid",
        }
    }
}
