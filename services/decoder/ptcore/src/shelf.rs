//! Memory of columns that nobody reads any more, for the columns to come: fresh memory costs more than what is written.

use pt_calls::{Columns, Records};
use std::sync::{Mutex, PoisonError};

/// Columns of two batches: one is read while the other is filled.
const MOST: usize = 16;

#[derive(Default)]
pub struct Shelf {
    pub u8s: Empty<u8>,
    pub u32s: Empty<u32>,
    pub u64s: Empty<u64>,
}

/// Columns without numbers, with room for some.
#[derive(Default)]
pub struct Empty<T>(Mutex<Vec<Vec<T>>>);

impl<T> Empty<T> {
    pub fn put(&self, numbers: &mut Vec<T>) {
        let mut numbers = std::mem::take(numbers);
        numbers.clear();
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < MOST {
            kept.push(numbers);
        }
    }

    fn take(&self) -> Vec<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }
}

impl Shelf {
    /// Calls without rows.
    pub fn records(&self) -> Records {
        let (u32s, u64s) = (&self.u32s, &self.u64s);
        let columns = Columns {
            start_tsc: u64s.take(),
            end_tsc: u64s.take(),
            depth: u32s.take(),
            function: u32s.take(),
            instructions: u64s.take(),
            instructions_total: u64s.take(),
            flags: self.u8s.take(),
            ..Columns::default()
        };
        Records { call: u64s.take(), parent: u64s.take(), columns }
    }
}
