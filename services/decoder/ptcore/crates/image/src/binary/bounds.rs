//! Where functions begin and end.

use super::{Binary, Function};
use crate::elf_file::File;
use crate::flatten::{flatten, Range};
use crate::name::Role;
use crate::plt::lazy_stubs;
use crate::symbols::Source;

/// What is known about an address: the function it is in, or between which bounds none is.
pub struct Found {
    pub function: Option<u32>,
    pub start: u64,
    pub end: u64,
}

impl Binary {
    /// The function around `address`.
    pub fn find(&self, address: u64) -> Found {
        let after = self.ranges.partition_point(|range| range.start <= address);
        let before = after.checked_sub(1).map(|index| self.ranges[index]);
        if let Some(range) = before.filter(|range| address < range.end) {
            return Found { function: Some(range.function), start: range.start, end: range.end };
        }
        let segment = self.segments.at_address(address).next();
        let (first, last) =
            segment.map_or((0, u64::MAX), |segment| (segment.address, segment.address.saturating_add(segment.size)));
        Found {
            function: None,
            start: before.map_or(first, |range| range.end.max(first)),
            end: self.ranges.get(after).map_or(last, |range| range.start.min(last)),
        }
    }

    pub(super) fn add_unwind_bounds(&self, functions: &mut Vec<Function>, file: &File<'_>, bounds: &[(u64, u64)]) {
        let known = flatten(&ranges(functions));
        let covered = |address: u64| {
            let after = known.partition_point(|range| range.start <= address);
            after > 0 && address < known[after - 1].end
        };
        let next =
            |address: u64| known.get(known.partition_point(|range| range.start <= address)).map(|range| range.start);
        let lazy = lazy_stubs(file);
        functions.extend(
            bounds.iter().filter(|&&(start, end)| start < end && self.is_code(start) && !covered(start)).map(
                |&(start, end)| Function {
                    address: start,
                    size: end.min(next(start).unwrap_or(u64::MAX)) - start,
                    source: Source::Unwind,
                    // The code in front of the stubs, which leads to the resolver.
                    role: if lazy.contains(&start) { Role::Stub } else { Role::Plain },
                    name: None,
                },
            ),
        );
        functions.sort_by_key(|function| function.address);
    }
}

/// Functions whose symbol says no size end where the next one, the next of the unwind table's `bounds` or their section
/// does. Sorted by address.
pub fn close_sizes(functions: &mut [Function], sections: &[(u64, u64)], bounds: &[(u64, u64)]) {
    let mut next = u64::MAX;
    for function in functions.iter_mut().rev() {
        if function.size == 0 {
            let after = sections.partition_point(|&(start, _)| start <= function.address);
            let end = after.checked_sub(1).map_or(next, |section| sections[section].1);
            let end = if end > function.address { end.min(next) } else { next };
            let unwound = bounds.partition_point(|&(start, _)| start <= function.address);
            let end = bounds.get(unwound).map_or(end, |&(start, _)| start.min(end));
            function.size = if end == u64::MAX { 1 } else { end - function.address };
        }
        next = function.address;
    }
}

pub fn ranges(functions: &[Function]) -> Vec<Range> {
    functions
        .iter()
        .zip(0..)
        .map(|(function, number)| Range {
            start: function.address,
            end: function.address.saturating_add(function.size),
            function: number,
        })
        .collect()
}
