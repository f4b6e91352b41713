//! Calls that are open, and how they begin.

use pt_image::Role;

/// A call that is open.
pub struct Frame {
    pub row: u32,
    pub function: u32,
    /// Whose own time passes while the call is the innermost: its function, or nobody where its begin has no time.
    pub timed: u32,
    /// What makes it other than most calls.
    pub marks: u8,
    /// `NO_ADDRESS` when it is not known.
    pub returns_to: u64,
    /// Instructions that had run when it began, and those of calls below it that are over.
    pub began: u64,
    pub below: u64,
}

/// Interrupted what ran; the interruption is the last one that is open.
pub const INTERRUPTED: u8 = 1;
/// Landings or calls of its own code are remembered as long as it is open.
pub const HOLDS: u8 = 2;
/// Who goes on when it is over need not be who called it.
const SWITCHES: u8 = 4;

impl Frame {
    /// Those of a call that nothing interrupts.
    pub fn marks_of(role: Role) -> u8 {
        if role == Role::Switch {
            SWITCHES
        } else {
            0
        }
    }

    pub fn is_asynchronous(&self) -> bool {
        self.marks & INTERRUPTED != 0
    }
}

/// Where the interrupted code goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interruption {
    pub resumes: u64,
    /// Another place where it may go on: a system call that is made again.
    pub repeats: u64,
    /// The handler has returned to the code that ends the interruption.
    pub returning: bool,
}

/// How a call begins.
#[derive(Clone, Copy)]
pub struct Entry {
    pub function: u32,
    pub call_address: u64,
    pub target: u64,
    /// `NO_ADDRESS` when it is not known.
    pub returns_to: u64,
    pub flags: u8,
}

pub const NO_ADDRESS: u64 = u64::MAX;
