//! Overlapping functions to ranges that do not overlap.

/// A stretch of addresses that belongs to a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub start: u64,
    pub end: u64,
    pub function: u32,
}

/// Cuts `ranges`, sorted by start, so that each address belongs to the range that begins last before it: a function
/// that begins inside another interrupts it. Empty ranges vanish.
pub fn flatten(ranges: &[Range]) -> Vec<Range> {
    let mut flat = Vec::with_capacity(ranges.len());
    let mut open: Vec<Range> = Vec::new();
    let mut at = 0;
    for range in ranges.iter().filter(|range| range.start < range.end) {
        close(&mut open, &mut flat, &mut at, range.start);
        if let Some(outer) = open.last() {
            tell(&mut flat, at, range.start, outer.function);
        }
        at = range.start;
        open.push(*range);
    }
    close(&mut open, &mut flat, &mut at, u64::MAX);
    flat
}

/// Ends the open ranges that end at or before `limit`.
fn close(open: &mut Vec<Range>, flat: &mut Vec<Range>, at: &mut u64, limit: u64) {
    while let Some(&inner) = open.last().filter(|inner| inner.end <= limit) {
        tell(flat, *at, inner.end, inner.function);
        *at = inner.end.max(*at);
        open.pop();
    }
}

fn tell(flat: &mut Vec<Range>, start: u64, end: u64, function: u32) {
    if start < end {
        flat.push(Range { start, end, function });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flat(ranges: &[(u64, u64)]) -> Vec<(u64, u64, u32)> {
        let ranges: Vec<_> =
            ranges.iter().zip(0..).map(|(&(start, end), function)| Range { start, end, function }).collect();
        flatten(&ranges).iter().map(|range| (range.start, range.end, range.function)).collect()
    }

    #[test]
    fn ranges_apart_stay() {
        assert_eq!(flat(&[(10, 20), (20, 30), (40, 50)]), [(10, 20, 0), (20, 30, 1), (40, 50, 2)]);
    }

    #[test]
    fn an_inner_function_interrupts_the_outer() {
        assert_eq!(flat(&[(10, 50), (20, 30)]), [(10, 20, 0), (20, 30, 1), (30, 50, 0)]);
        assert_eq!(
            flat(&[(10, 50), (20, 40), (25, 30)]),
            [(10, 20, 0), (20, 25, 1), (25, 30, 2), (30, 40, 1), (40, 50, 0)]
        );
    }

    #[test]
    fn the_later_of_two_that_overlap_has_the_common_part() {
        assert_eq!(flat(&[(10, 30), (20, 40)]), [(10, 20, 0), (20, 40, 1)]);
        assert_eq!(flat(&[(10, 30), (20, 40), (50, 60)]), [(10, 20, 0), (20, 40, 1), (50, 60, 2)]);
    }

    #[test]
    fn empty_ranges_vanish() {
        assert_eq!(flat(&[(10, 10), (10, 12)]), [(10, 12, 1)]);
    }
}
