//! How blocks are reached.

use pt_flow::{is_kernel, Block, BlockKind};

/// Bytes of SYSCALL, SYSENTER and INT n.
pub const SYSTEM_CALL: u64 = 2;

/// How the next block is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// By a branch that leaves the stack alone.
    Jump,
    IndirectJump,
    /// Nothing before it is known.
    Begin,
    /// By the last block's call.
    Call,
    /// By the last block's call of what stands behind it: another function, or code that reads its own address.
    CallBehind,
    Return,
    /// By a far branch that both sides of were traced.
    Far,
    Interruption,
    /// Where tracing goes on elsewhere than where it was left.
    Elsewhere,
}

impl Arrival {
    #[inline(always)]
    pub fn behind(block: &Block<'_>) -> Arrival {
        match block.kind {
            BlockKind::Call | BlockKind::IndirectCall if block.target != block.end => Arrival::Call,
            BlockKind::Call | BlockKind::IndirectCall => Arrival::CallBehind,
            BlockKind::Return => Arrival::Return,
            BlockKind::IndirectJump => Arrival::IndirectJump,
            BlockKind::Far => Arrival::Far,
            // Out of what is traced it is like any other far branch.
            BlockKind::FarCall if block.target == 0 => Arrival::Far,
            BlockKind::FarCall if block.target != block.end => Arrival::Call,
            BlockKind::FarCall => Arrival::CallBehind,
            _ => Arrival::Jump,
        }
    }

    #[inline(always)]
    pub fn is_jump(self) -> bool {
        matches!(self, Arrival::Jump | Arrival::IndirectJump)
    }

    /// Whether a stub may be passed through on this way.
    #[inline(always)]
    pub fn passes(self) -> bool {
        self.is_jump() || matches!(self, Arrival::Call | Arrival::CallBehind)
    }
}

/// Where the flow was interrupted, and where it would go on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    pub at: u64,
    pub resumes: u64,
    pub way: Way,
}

/// Whether a system call in front of `resumes` may go on at `address`. SYSENTER does not keep where it was: Linux goes on behind the
/// INT 80H that stands behind it (arch/x86/entry/vdso/vdso32/system_call.S).
pub fn is_landing(resumes: u64, address: u64) -> bool {
    address == resumes.wrapping_add(SYSTEM_CALL) && address >> 32 == 0
}

/// What the flow was left by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Way {
    /// What came between two instructions, or a call.
    #[default]
    Between,
    Far,
    /// A jump to what is not traced, as out of the filtered addresses.
    Jump,
    Return,
}

impl Way {
    /// By the branch that disabled tracing, which says where it led if `told`.
    pub fn behind(arrival: Arrival, told: bool) -> Way {
        match arrival {
            Arrival::Far => Way::Far,
            Arrival::Return => Way::Return,
            Arrival::IndirectJump => Way::Jump,
            Arrival::Jump if told => Way::Jump,
            _ => Way::Between,
        }
    }
}

impl Left {
    /// Whether the call that it was left in may be over.
    pub fn leads_out(&self) -> bool {
        matches!(self.way, Way::Jump | Way::Return)
    }

    /// Whether what was left goes on at `address`.
    pub fn goes_on_at(&self, address: u64) -> bool {
        address == self.resumes || self.way == Way::Far && is_landing(self.resumes, address)
    }

    /// Whether tracing ended between two instructions of the kernel, and begins elsewhere in it: by writes to IA32_RTIT_CTL, as
    /// perf makes them where another thread is to run and where this one runs again.
    pub fn stops_kernel(&self, begins: u64) -> bool {
        self.at == self.resumes && is_kernel(self.at) && is_kernel(begins)
    }
}
