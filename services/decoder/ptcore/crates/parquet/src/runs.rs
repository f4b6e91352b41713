//! Columns that stay the same for many rows.

use crate::indices;

/// Runs of numbers.
#[derive(Default)]
pub struct Runs {
    runs: Vec<(i32, usize)>,
}

impl Runs {
    pub fn push(&mut self, number: i32, rows: usize) {
        match self.runs.last_mut() {
            Some((last, count)) if *last == number => *count += rows,
            _ if rows > 0 => self.runs.push((number, rows)),
            _ => {}
        }
    }

    /// Adds the encoded places to `out` and begins anew; the numbers at the places.
    pub fn finish(&mut self, out: &mut Vec<u8>) -> Vec<i32> {
        let mut numbers: Vec<_> = self.runs.iter().map(|&(number, _)| number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let place = |number: i32| numbers.partition_point(|&other| other < number) as u32;
        let runs: Vec<_> = self.runs.drain(..).map(|(number, rows)| (place(number), rows)).collect();
        indices::runs(&runs, numbers.len().saturating_sub(1) as u32, out);
        numbers
    }
}
