//! Calls that are open, and how they begin.

/// A call that is open.
pub struct Frame {
    pub row: u32,
    pub function: u32,
    /// Whose own time passes while the call is the innermost: its function, or nobody where its begin has no time.
    pub timed: u32,
    /// Interrupted what ran; the interruption is the last one that is open.
    pub asynchronous: bool,
    /// `NO_ADDRESS` when it is not known.
    pub returns_to: u64,
    /// Instructions of the call itself and of those below it that are over.
    pub own: u64,
    pub below: u64,
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
    pub returns_to: Option<u64>,
    pub flags: u8,
    pub interruption: Option<Interruption>,
}

pub const NO_ADDRESS: u64 = u64::MAX;
