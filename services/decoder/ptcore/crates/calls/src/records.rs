//! Calls as columns.

/// The call began before the trace did.
pub const BEGIN_TRUNCATED: u8 = 1;
/// The call was not over when the trace or a gapless stretch of it ended.
pub const END_TRUNCATED: u8 = 2;
/// Entered by a jump: the caller's caller is the parent.
pub const TAIL_CALL: u8 = 4;
/// Entered by a signal, an interrupt or an exception.
pub const ASYNCHRONOUS: u8 = 8;
/// Ended by a jump or return to a frame further up: `longjmp`, C++ exception.
pub const UNWOUND: u8 = 16;

/// The parent of a call without one.
pub const NO_PARENT: u32 = u32::MAX;

/// One row for each call; while they are collected in the order in which they became known: a parent that was found when
/// its child returned stands behind the child.
#[derive(Debug, Default)]
pub struct Records {
    /// TSC ticks; 0 when unknown.
    pub start_tsc: Vec<u64>,
    pub end_tsc: Vec<u64>,
    /// Number of callers that are known.
    pub depth: Vec<u32>,
    /// Number in the function table.
    pub function: Vec<u32>,
    /// The call instruction; of an asynchronous call the instruction before which it came; 0 when not seen.
    pub call_address: Vec<u64>,
    /// The first instruction that ran; of a call found later where it was returned to.
    pub target: Vec<u64>,
    /// Instructions of the call itself.
    pub instructions: Vec<u64>,
    /// With those of all calls below.
    pub instructions_total: Vec<u64>,
    pub flags: Vec<u8>,
    /// Row of the caller.
    pub parent: Vec<u32>,
}

/// What is known when a call begins.
pub struct Opening {
    pub function: u32,
    pub call_address: u64,
    pub target: u64,
    pub flags: u8,
    pub parent: u32,
}

impl Records {
    pub fn len(&self) -> usize {
        self.function.len()
    }

    pub fn is_empty(&self) -> bool {
        self.function.is_empty()
    }

    /// Times, depth and totals are filled in later.
    pub(crate) fn open(&mut self, call: Opening) -> u32 {
        let row = self.len() as u32;
        self.start_tsc.push(0);
        self.end_tsc.push(0);
        self.depth.push(0);
        self.function.push(call.function);
        self.call_address.push(call.call_address);
        self.target.push(call.target);
        self.instructions.push(0);
        self.instructions_total.push(0);
        self.flags.push(call.flags);
        self.parent.push(call.parent);
        row
    }

    /// Row `order[n]` becomes row `n`.
    pub(crate) fn reorder(&mut self, order: &[u32]) {
        let mut place = vec![0; order.len()];
        for (&row, number) in order.iter().zip(0..) {
            place[row as usize] = number;
        }
        for parent in self.parent.iter_mut().filter(|parent| **parent != NO_PARENT) {
            *parent = place[*parent as usize];
        }
        for column in [&mut self.depth, &mut self.function, &mut self.parent] {
            *column = permuted(column, order);
        }
        for column in [
            &mut self.start_tsc,
            &mut self.end_tsc,
            &mut self.call_address,
            &mut self.target,
            &mut self.instructions,
            &mut self.instructions_total,
        ] {
            *column = permuted(column, order);
        }
        self.flags = permuted(&self.flags, order);
    }
}

fn permuted<T: Copy>(column: &[T], order: &[u32]) -> Vec<T> {
    order.iter().map(|&row| column[row as usize]).collect()
}
