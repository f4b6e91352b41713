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
    pub depth: u32,
}

/// Columns grow by this many rows: few enough to stay in the cache until they are filled.
pub(crate) const GROWTH: usize = 512;

impl Records {
    pub fn len(&self) -> usize {
        self.function.len()
    }

    pub fn is_empty(&self) -> bool {
        self.function.is_empty()
    }

    /// Row `row` is the next one. What is not given is anything until it is known.
    #[inline(always)]
    pub(crate) fn open(&mut self, row: u32, call: &Opening) {
        let row = row as usize;
        if row >= self.function.len() {
            self.grow();
        }
        self.function[row] = call.function;
        self.call_address[row] = call.call_address;
        self.target[row] = call.target;
        self.parent[row] = call.parent;
        self.depth[row] = call.depth;
        self.flags[row] = call.flags;
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        self.resize(self.len() + GROWTH);
    }

    /// How long the call took; 0 when that is unknown.
    pub(crate) fn ticks(&self, row: usize) -> u64 {
        match self.start_tsc[row] {
            0 => 0,
            start => self.end_tsc[row].saturating_sub(start),
        }
    }

    /// No rows, and room for so many.
    pub(crate) fn with_capacity(rows: usize) -> Records {
        Records {
            start_tsc: Vec::with_capacity(rows),
            end_tsc: Vec::with_capacity(rows),
            depth: Vec::with_capacity(rows),
            function: Vec::with_capacity(rows),
            call_address: Vec::with_capacity(rows),
            target: Vec::with_capacity(rows),
            instructions: Vec::with_capacity(rows),
            instructions_total: Vec::with_capacity(rows),
            flags: Vec::with_capacity(rows),
            parent: Vec::with_capacity(rows),
        }
    }

    /// Exactly `rows` rows.
    pub(crate) fn resize(&mut self, rows: usize) {
        self.start_tsc.resize(rows, 0);
        self.end_tsc.resize(rows, 0);
        self.depth.resize(rows, 0);
        self.function.resize(rows, 0);
        self.call_address.resize(rows, 0);
        self.target.resize(rows, 0);
        self.instructions.resize(rows, 0);
        self.instructions_total.resize(rows, 0);
        self.flags.resize(rows, 0);
        self.parent.resize(rows, 0);
    }

    /// The rows at `first` of `range` come before the others of it, in the order given. No row from `end` on has a parent
    /// there.
    pub(crate) fn bring_forward(&mut self, range: std::ops::Range<usize>, first: &[u32], end: usize) {
        let mut chosen = vec![false; range.len()];
        first.iter().for_each(|&row| chosen[row as usize - range.start] = true);
        let others = range.clone().filter(|row| !chosen[row - range.start]).map(|row| row as u32);
        let order: Vec<u32> = first.iter().copied().chain(others).collect();
        let mut place = vec![0; order.len()];
        for (&row, number) in order.iter().zip(range.start as u32..) {
            place[row as usize - range.start] = number;
        }
        for parent in &mut self.parent[range.start..end] {
            if range.contains(&(*parent as usize)) {
                *parent = place[*parent as usize - range.start];
            }
        }
        for column in [&mut self.depth, &mut self.function, &mut self.parent] {
            permute(column, range.start, &order);
        }
        for column in [
            &mut self.start_tsc,
            &mut self.end_tsc,
            &mut self.call_address,
            &mut self.target,
            &mut self.instructions,
            &mut self.instructions_total,
        ] {
            permute(column, range.start, &order);
        }
        permute(&mut self.flags, range.start, &order);
    }
}

fn permute<T: Copy>(column: &mut [T], start: usize, order: &[u32]) {
    let moved: Vec<T> = order.iter().map(|&row| column[row as usize]).collect();
    column[start..start + moved.len()].copy_from_slice(&moved);
}
