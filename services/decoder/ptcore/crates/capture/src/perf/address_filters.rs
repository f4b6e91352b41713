//! Address filters of a recording (`perf record --filter`): what they leave to be traced.

use super::pt_info::filters;
use crate::options::number;
use crate::spaces::Stretches;
use pt_flow::AddressFilter;
use std::cmp::Reverse;

/// CPUID leaf 14H counts the ranges of a processor with three bits.
const MOST: usize = 7;

/// A stretch of a file, or of the kernel's addresses.
struct Entry {
    /// Tracing ends there; otherwise it alone is traced.
    stops: bool,
    start: u64,
    end: u64,
    file: Option<String>,
    mapped: bool,
}

/// The filters, and the addresses that they came to so far. One setting holds for the whole recording, but each process may
/// have mapped a file elsewhere, also one after another: a range is what any of them made it. So a branch is only taken for
/// one that left what was traced where it left all of these ranges.
#[derive(Default)]
pub struct AddressFilters {
    entries: Vec<Entry>,
    traced: Stretches,
    stops: Stretches,
    /// Why the text cannot be understood.
    refused: Option<String>,
}

impl AddressFilters {
    /// Of AUXTRACE_INFO.
    pub fn read(body: &[u8]) -> Self {
        match filters(body) {
            Ok(text) => Self::of(&text),
            Err(short) => AddressFilters { refused: Some(short.to_string()), ..Self::default() },
        }
    }

    fn of(text: &str) -> Self {
        let mut all = AddressFilters::default();
        match entries(text) {
            Ok(entries) => all.entries = entries,
            Err(reason) => all.refused = Some(reason),
        }
        for entry in all.entries.iter().filter(|entry| entry.file.is_none()) {
            let ranges = if entry.stops { &mut all.stops } else { &mut all.traced };
            ranges.add(entry.start, entry.end);
        }
        all
    }

    /// A file was mapped, from this offset on.
    pub fn map(&mut self, address: u64, size: u64, offset: u64, file: &str) {
        for entry in self.entries.iter_mut().filter(|entry| entry.file.as_deref() == Some(file)) {
            let (start, end) = (entry.start.max(offset), entry.end.min(offset.saturating_add(size)));
            if start < end {
                entry.mapped = true;
                let ranges = if entry.stops { &mut self.stops } else { &mut self.traced };
                ranges.add(address.saturating_add(start - offset), address.saturating_add(end - offset));
            }
        }
    }

    /// What was traced, once all that was mapped is known (`intel_pt_match_pgd_ip` of tools/perf/util/intel-pt.c).
    pub fn finish(mut self, warnings: &mut Vec<String>) -> AddressFilter {
        let mut warn = |what: &str| {
            let may = "where a direct branch left what was traced, code that did not run may be told (SKL014)";
            warnings.push(format!("address filters: {what}: {may}"));
        };
        if let Some(reason) = self.refused {
            warn(&format!("they are not understood: {reason}"));
        }
        for entry in self.entries.iter().filter(|entry| entry.file.is_some() && !entry.mapped) {
            let Entry { start, end, file, .. } = entry;
            let file = file.as_deref().unwrap_or_default();
            warn(&format!("{start:#x} to {end:#x} of {file} was never mapped in the recording"));
        }
        if self.traced.is_empty() && !self.stops.is_empty() && self.entries.iter().all(|entry| entry.stops) {
            self.traced.add(0, u64::MAX);
        }
        for (start, end) in self.stops.take() {
            self.traced.remove(start, end);
        }
        let ranges: Vec<_> = self.traced.take().collect();
        let mut filter = AddressFilter::default();
        let most = filter.ranges.len();
        if ranges.len() > most {
            warn(&format!("they come to {} ranges of addresses, of which the nearest are taken for one", ranges.len()));
        }
        for (range, few) in filter.ranges.iter_mut().zip(widest_apart(&ranges, most)) {
            *range = few.first().zip(few.last()).map(|(first, last)| (first.0, last.1 - 1));
        }
        filter
    }
}

/// Ranges in order, divided into so many groups at the widest gaps.
fn widest_apart(ranges: &[(u64, u64)], groups: usize) -> Vec<&[(u64, u64)]> {
    let mut cuts: Vec<_> = (1..ranges.len()).collect();
    cuts.sort_by_key(|&at| Reverse(ranges[at].0 - ranges[at - 1].1));
    cuts.truncate(groups - 1);
    cuts.extend([0, ranges.len()]);
    cuts.sort_unstable();
    cuts.windows(2).map(|cut| &ranges[cut[0]..cut[1]]).collect()
}

/// `filter 0x1000/0x20@/file,stop 0xffffffff81000000/0x40`: perf made numbers of symbols for the kernel
/// (`addr_filter__to_str` of tools/perf/util/auxtrace.c), whose driver for Processor Trace takes no single addresses. `start`
/// of a range was the same as `filter`, and `tracestop` is the same as `stop`.
fn entries(text: &str) -> Result<Vec<Entry>, String> {
    let mut entries = Vec::new();
    let mut words = text.split([' ', ',']).filter(|word| !word.is_empty());
    while let Some(action) = words.next() {
        let stops = match action {
            "filter" | "start" => false,
            "stop" | "tracestop" => true,
            _ => return Err(format!("`{action}` is no kind of filter")),
        };
        let place = words.next().ok_or_else(|| format!("`{action}` of nothing"))?;
        let (range, file) = place.split_once('@').map_or((place, None), |(range, file)| (range, Some(file)));
        let (start, size) = range.split_once('/').ok_or_else(|| format!("`{place}` has no size"))?;
        let (Some(start), Some(size @ 1..)) = (number(start), number(size)) else {
            return Err(format!("`{range}` is no range of addresses"));
        };
        let end = start.saturating_add(size);
        entries.push(Entry { stops, start, end, file: file.map(str::to_owned), mapped: false });
        if entries.len() > MOST {
            return Err(format!("there are more than the {MOST} that a processor may have"));
        }
    }
    Ok(entries)
}

#[cfg(test)]
mod tests;
