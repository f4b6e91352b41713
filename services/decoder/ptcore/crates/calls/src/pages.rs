//! Rows of calls, some to a page.

use crate::records::Columns;
use std::ops::Range;

/// Rows of a page: few enough for it to stay in the cache until they are filled.
pub const ROWS: usize = 512;
/// Columns are longer by a line of the cache: were they as far apart as its ways are long, the columns of one row would
/// stand in each other's way.
const WIDE: usize = ROWS + 8;
const NARROW: usize = ROWS + 16;

/// Columns of a fixed length: who found the page and the place in it finds every column there without looking.
pub struct Page {
    pub start_tsc: [u64; WIDE],
    pub end_tsc: [u64; WIDE],
    pub call_address: [u64; WIDE],
    pub target: [u64; WIDE],
    pub instructions: [u64; WIDE],
    pub instructions_total: [u64; WIDE],
    pub depth: [u32; NARROW],
    pub function: [u32; NARROW],
    /// Row of the caller.
    pub parent: [u32; NARROW],
    pub flags: [u8; ROWS],
}

/// Pages of rows that follow one another.
#[derive(Default)]
pub struct Pages(Vec<Box<Page>>);

impl Pages {
    /// The page of the row, and its place there.
    #[inline(always)]
    pub fn at(&mut self, row: u32) -> (&mut Page, usize) {
        (&mut self.0[row as usize / ROWS], row as usize % ROWS)
    }

    #[inline(always)]
    pub fn look_at(&self, row: u32) -> (&Page, usize) {
        (&self.0[row as usize / ROWS], row as usize % ROWS)
    }

    /// At least so many rows.
    pub fn grow(&mut self, rows: usize) {
        self.0.resize_with(self.0.len().max(rows.div_ceil(ROWS)), Page::new);
    }

    /// Adds rows to `columns`, with their addresses or without.
    pub fn add_to(&self, columns: &mut Columns, rows: Range<usize>, addresses: bool) {
        for (page, rows) in self.parts(rows) {
            columns.start_tsc.extend_from_slice(&page.start_tsc[rows.clone()]);
            columns.end_tsc.extend_from_slice(&page.end_tsc[rows.clone()]);
            if addresses {
                columns.call_address.extend_from_slice(&page.call_address[rows.clone()]);
                columns.target.extend_from_slice(&page.target[rows.clone()]);
            }
            columns.instructions.extend_from_slice(&page.instructions[rows.clone()]);
            columns.instructions_total.extend_from_slice(&page.instructions_total[rows.clone()]);
            columns.depth.extend_from_slice(&page.depth[rows.clone()]);
            columns.function.extend_from_slice(&page.function[rows.clone()]);
            columns.flags.extend_from_slice(&page.flags[rows]);
        }
    }

    /// The rows as they stand in pages.
    pub fn parts(&self, rows: Range<usize>) -> impl Iterator<Item = (&Page, Range<usize>)> {
        let pages = if rows.is_empty() { 0..0 } else { rows.start / ROWS..rows.end.div_ceil(ROWS) };
        pages.map(move |page| {
            let first = page * ROWS;
            (&*self.0[page], rows.start.max(first) - first..rows.end.min(first + ROWS) - first)
        })
    }

    /// The rows of `kept`, which are in order, become the first ones; they have no callers any more.
    pub fn bring_forward(&mut self, kept: &[u32]) {
        for (to, &row) in (0..).zip(kept).filter(|&(to, &row)| to != row) {
            let (from, at) = self.look_at(row);
            let (start_tsc, end_tsc) = (from.start_tsc[at], from.end_tsc[at]);
            let (call_address, target) = (from.call_address[at], from.target[at]);
            let (own, total) = (from.instructions[at], from.instructions_total[at]);
            let (depth, function, flags) = (from.depth[at], from.function[at], from.flags[at]);
            let (page, at) = self.at(to);
            (page.start_tsc[at], page.end_tsc[at]) = (start_tsc, end_tsc);
            (page.call_address[at], page.target[at]) = (call_address, target);
            (page.instructions[at], page.instructions_total[at]) = (own, total);
            (page.depth[at], page.function[at], page.flags[at]) = (depth, function, flags);
        }
    }

    /// The first rows have no times any more.
    pub fn forget_times(&mut self, rows: usize) {
        for (page, first) in self.0.iter_mut().zip((0..rows).step_by(ROWS)) {
            let rows = ROWS.min(rows - first);
            page.start_tsc[..rows].fill(0);
            page.end_tsc[..rows].fill(0);
        }
    }

    pub fn memory(&self) -> usize {
        self.0.len() * size_of::<Page>()
    }
}

impl Page {
    fn new() -> Box<Page> {
        Box::new(Page {
            start_tsc: [0; WIDE],
            end_tsc: [0; WIDE],
            call_address: [0; WIDE],
            target: [0; WIDE],
            instructions: [0; WIDE],
            instructions_total: [0; WIDE],
            depth: [0; NARROW],
            function: [0; NARROW],
            parent: [0; NARROW],
            flags: [0; ROWS],
        })
    }
}
