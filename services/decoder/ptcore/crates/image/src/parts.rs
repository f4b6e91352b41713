//! Parts of functions that the compiler moved away from them, where no name tells: what the unwind table says of them.

use crate::elf_file::File;
use crate::landing::Tables;
use crate::unwind::each;
use std::collections::HashMap;

/// The parts that begin at addresses of which `is_unnamed` holds, each with the function that it is of, by their starts.
pub fn parts(file: &File<'_>, is_unnamed: impl Fn(u64) -> bool) -> HashMap<u64, u64> {
    let mut known: Vec<Known> = Vec::new();
    let mut whole = HashMap::new();
    each(file, |description| {
        let (start, end) = description.bounds();
        // Compilers describe a part right behind its function, and linkers put such parts in front of all functions.
        let before = known.last().filter(|before| start < before.start);
        if let Some(before) = before.filter(|_| is_unnamed(start) && description.is_inside()) {
            whole.insert(start, *whole.get(&before.start).unwrap_or(&before.start));
        }
        known.push(Known { start, end, handlers: description.handlers() });
    });
    for (part, function) in caught_for(file, known, &whole) {
        if is_unnamed(part) {
            whole.insert(part, function);
        }
    }
    let is_whole = |part: u64, function: u64| part != function && !whole.contains_key(&function);
    whole
        .iter()
        .filter(|(&part, &function)| is_whole(part, function))
        .map(|(&part, &function)| (part, function))
        .collect()
}

struct Known {
    start: u64,
    end: u64,
    handlers: Option<u64>,
}

/// Descriptions with landing pads of one function alone.
fn caught_for(file: &File<'_>, mut known: Vec<Known>, whole: &HashMap<u64, u64>) -> Vec<(u64, u64)> {
    let Some(mut tables) = Tables::open(file) else { return Vec::new() };
    known.sort_by_key(|one| one.start);
    known.dedup_by_key(|one| one.start);
    let around = |pad: u64| {
        let after = known.partition_point(|one| one.start <= pad);
        after.checked_sub(1).map(|index| &known[index]).filter(|one| pad < one.end)
    };
    let mut found: HashMap<u64, Option<u64>> = HashMap::new();
    for one in &known {
        let Some(handlers) = one.handlers else { continue };
        let function = *whole.get(&one.start).unwrap_or(&one.start);
        for caught in tables.catches(handlers, (one.start, one.end)) {
            let Some(part) = around(caught.pad).filter(|part| part.start != one.start) else { continue };
            let known = found.entry(part.start).or_insert(Some(function));
            *known = known.filter(|&known| known == function);
        }
    }
    found.into_iter().filter_map(|(part, function)| Some((part, function?))).collect()
}
