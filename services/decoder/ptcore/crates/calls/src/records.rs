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
pub const NO_PARENT: u64 = u64::MAX;

/// One row for each call that is over. Numbers grow in the order in which calls began, callers before what they call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Records {
    /// Number of the call.
    pub call: Vec<u64>,
    /// Number of the caller.
    pub parent: Vec<u64>,
    pub columns: Columns,
}

impl std::ops::Deref for Records {
    type Target = Columns;

    fn deref(&self) -> &Columns {
        &self.columns
    }
}

/// What is known of calls besides which they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Columns {
    /// TSC ticks; 0 when unknown.
    pub start_tsc: Vec<u64>,
    pub end_tsc: Vec<u64>,
    /// Number of callers that are known.
    pub depth: Vec<u32>,
    /// Number in the function table.
    pub function: Vec<u32>,
    /// Where addresses are taken: the call instruction; of an asynchronous call the instruction before which it came; 0 when not seen.
    pub call_address: Vec<u64>,
    /// Likewise: the first instruction that ran; of a call found later where it was returned to.
    pub target: Vec<u64>,
    /// Instructions of the call itself.
    pub instructions: Vec<u64>,
    /// With those of all calls below.
    pub instructions_total: Vec<u64>,
    pub flags: Vec<u8>,
}

/// Does the same to every column of one but for addresses, with that of another.
macro_rules! each_but_addresses {
    ($do:ident, $one:expr, $other:expr $(, $argument:expr)*) => {{
        let (one, other) = ($one, $other);
        $do(&mut one.start_tsc, &mut other.start_tsc $(, $argument)*);
        $do(&mut one.end_tsc, &mut other.end_tsc $(, $argument)*);
        $do(&mut one.instructions, &mut other.instructions $(, $argument)*);
        $do(&mut one.instructions_total, &mut other.instructions_total $(, $argument)*);
        $do(&mut one.depth, &mut other.depth $(, $argument)*);
        $do(&mut one.function, &mut other.function $(, $argument)*);
        $do(&mut one.flags, &mut other.flags $(, $argument)*);
    }};
}

/// The same to the columns of addresses.
macro_rules! each_of_addresses {
    ($do:ident, $one:expr, $other:expr $(, $argument:expr)*) => {{
        let (one, other) = ($one, $other);
        $do(&mut one.call_address, &mut other.call_address $(, $argument)*);
        $do(&mut one.target, &mut other.target $(, $argument)*);
    }};
}

macro_rules! each {
    ($do:ident, $one:expr, $other:expr $(, $argument:expr)*) => {{
        let (one, other) = ($one, $other);
        each_but_addresses!($do, &mut *one, &mut *other $(, $argument)*);
        each_of_addresses!($do, one, other $(, $argument)*);
    }};
}

impl Columns {
    pub fn len(&self) -> usize {
        self.function.len()
    }

    pub fn is_empty(&self) -> bool {
        self.function.is_empty()
    }

    fn clear(&mut self) {
        fn clear<T>(column: &mut Vec<T>, _: &mut Vec<T>) {
            column.clear();
        }
        each!(clear, self, &mut Columns::default());
    }

    fn reserve(&mut self, rows: usize, addresses: bool) {
        fn reserve<T>(column: &mut Vec<T>, _: &mut Vec<T>, rows: usize) {
            column.reserve_exact(rows);
        }
        each_but_addresses!(reserve, &mut *self, &mut Columns::default(), rows);
        if addresses {
            each_of_addresses!(reserve, self, &mut Columns::default(), rows);
        }
    }

    pub(crate) fn append(&mut self, other: &mut Columns) {
        fn append<T>(column: &mut Vec<T>, other: &mut Vec<T>) {
            column.append(other);
        }
        each!(append, self, other);
    }

    pub(crate) fn memory(&self) -> usize {
        self.start_tsc.capacity() * (4 * 8 + 2 * 4 + 1) + self.target.capacity() * 2 * 8
    }
}

impl Records {
    /// No rows, the same memory.
    pub fn clear(&mut self) {
        self.call.clear();
        self.parent.clear();
        self.columns.clear();
    }

    /// Room for exactly so many rows more.
    pub(crate) fn reserve(&mut self, rows: usize, addresses: bool) {
        self.call.reserve_exact(rows);
        self.parent.reserve_exact(rows);
        self.columns.reserve(rows, addresses);
    }

    /// The last row takes the place of this one.
    pub(crate) fn swap_remove(&mut self, row: usize) {
        fn swap_remove<T>(column: &mut Vec<T>, _: &mut Vec<T>, row: usize) {
            column.swap_remove(row);
        }
        self.call.swap_remove(row);
        self.parent.swap_remove(row);
        each_but_addresses!(swap_remove, &mut self.columns, &mut Columns::default(), row);
        if !self.columns.target.is_empty() {
            each_of_addresses!(swap_remove, &mut self.columns, &mut Columns::default(), row);
        }
    }

    pub(crate) fn memory(&self) -> usize {
        (self.call.capacity() + self.parent.capacity()) * 8 + self.columns.memory()
    }

    /// Adds those of `other`, which has none then.
    pub fn append(&mut self, other: &mut Records) {
        self.call.append(&mut other.call);
        self.parent.append(&mut other.parent);
        self.columns.append(&mut other.columns);
    }

    /// All calls of a stream: in the order of their numbers, and numbered by row.
    pub fn number(&mut self) {
        if self.call.windows(2).any(|pair| pair[0] > pair[1]) {
            self.sort();
        }
        // Numbers that follow one another, each with the row of the first.
        let mut runs: Vec<(u64, usize)> = Vec::new();
        for (row, &call) in self.call.iter().enumerate() {
            if runs.last().is_none_or(|&(from, first)| from + (row - first) as u64 != call) {
                runs.push((call, row));
            }
        }
        let mut last = (0, 0);
        for parent in self.parent.iter_mut().filter(|parent| **parent != NO_PARENT) {
            if *parent < last.0 || runs.get(last.1 + 1).is_some_and(|next| next.0 <= *parent) {
                last.1 = runs.partition_point(|run| run.0 <= *parent).saturating_sub(1);
                last.0 = runs[last.1].0;
            }
            *parent = *parent - runs[last.1].0 + runs[last.1].1 as u64;
        }
        self.call.iter_mut().zip(0..).for_each(|(call, row)| *call = row);
    }

    fn sort(&mut self) {
        fn sort<T: Copy>(column: &mut Vec<T>, _: &mut Vec<T>, rows: &[u32]) {
            *column = rows.iter().map(|&row| column[row as usize]).collect();
        }
        let mut rows: Vec<u32> = (0..self.call.len() as u32).collect();
        rows.sort_by_key(|&row| self.call[row as usize]);
        sort(&mut self.call, &mut Vec::new(), &rows);
        sort(&mut self.parent, &mut Vec::new(), &rows);
        each_but_addresses!(sort, &mut self.columns, &mut Columns::default(), &rows);
        if !self.columns.target.is_empty() {
            each_of_addresses!(sort, &mut self.columns, &mut Columns::default(), &rows);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_rows() {
        let mut records = Records { call: vec![7, 8, 3, 20], parent: vec![3, 7, NO_PARENT, 8], ..Records::default() };
        let columns = &mut records.columns;
        (columns.start_tsc, columns.end_tsc) = (vec![0; 4], vec![0; 4]);
        (columns.depth, columns.function, columns.flags) = (vec![0; 4], vec![0; 4], vec![0; 4]);
        (columns.instructions, columns.instructions_total) = (vec![0; 4], vec![0; 4]);
        records.number();
        assert_eq!((records.call, records.parent), (vec![0, 1, 2, 3], vec![NO_PARENT, 0, 1, 2]));
    }
}
