//! Names of code that a program wrote at run time, where it tells no more: a perf map.
//!
//! Format: tools/perf/Documentation/jit-interface.txt of Linux.

use crate::elf::Function;
use std::collections::BTreeMap;
use std::io::Read;
use std::ops::Range;
use std::path::Path;

/// So many bytes of a map are read: about a million functions.
const MAX_BYTES: u64 = 1 << 26;
/// Functions of a session's map are taken up to this many, the last ones.
const MAX_NAMED: usize = 1 << 20;

/// Functions of a map.
#[derive(Debug, Default)]
pub struct PerfMap {
    file: String,
    /// By address, with their places in the file: of two at the same address the later one holds.
    functions: Vec<(usize, Function)>,
}

impl PerfMap {
    /// Reads `/tmp/perf-PID.map`: lines of address, size (both hexadecimal) and name. With it, what of the file is not in it.
    pub fn read(path: &Path) -> Result<(PerfMap, Option<String>), String> {
        PerfMap::read_up_to(path, MAX_BYTES)
    }

    fn read_up_to(path: &Path, limit: u64) -> Result<(PerfMap, Option<String>), String> {
        let mut text = Vec::new();
        let mut read = || {
            let file = std::fs::File::open(path)?;
            let size = file.metadata()?.len();
            file.take(limit).read_to_end(&mut text)?;
            Ok(size)
        };
        let size = read().map_err(|error: std::io::Error| format!("{}: {error}", path.display()))?;
        let whole = size <= limit;
        if !whole {
            // The last line need not be whole.
            text.truncate(text.iter().rposition(|&byte| byte == b'\n').unwrap_or(0));
        }
        let what = format!("{}: it has {size} bytes: names behind the first {limit} are left out", path.display());
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok((PerfMap { file, ..PerfMap::parse(&text) }, (!whole).then_some(what)))
    }

    pub fn parse(text: &[u8]) -> PerfMap {
        let text = String::from_utf8_lossy(text);
        let functions = text.lines().filter_map(function);
        let mut functions: Vec<_> = functions.enumerate().collect();
        functions.sort_by_key(|(_, function)| function.address);
        PerfMap { functions, ..PerfMap::default() }
    }

    pub fn why_no_code(&self) -> String {
        format!("{} names code that was written at run time: only a jitdump file has its bytes", self.file)
    }

    /// Those that begin in the range, in the order of the file.
    pub fn within(&self, range: Range<u64>) -> Vec<&Function> {
        let place = |address| self.functions.partition_point(|(_, function)| function.address < address);
        let (from, to) = (place(range.start), place(range.end));
        let mut inside: Vec<_> = self.functions[from..to.max(from)].iter().collect();
        inside.sort_unstable_by_key(|(place, _)| *place);
        inside.into_iter().map(|(_, function)| function).collect()
    }
}

/// The functions of a map, by address. Programs add lines as they write code: what a later line overlaps is gone.
pub fn last_functions(text: &[u8]) -> Vec<Function> {
    let mut functions: BTreeMap<u64, Function> = BTreeMap::new();
    let lines = text.rsplit(|&byte| byte == b'\n');
    for found in lines.filter_map(|line| function(&String::from_utf8_lossy(line))) {
        let end = found.address + found.size;
        let before = functions.range(..end).next_back();
        if before.is_none_or(|(_, later)| later.address + later.size <= found.address) {
            functions.insert(found.address, found);
        }
        if functions.len() >= MAX_NAMED {
            break;
        }
    }
    functions.into_values().collect()
}

/// What a line names, if it is sound.
fn function(line: &str) -> Option<Function> {
    let (address, rest) = line.split_once(' ')?;
    let (size, name) = rest.split_once(' ')?;
    let number = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok();
    let (address, size, name) = (number(address)?, number(size)?, name.trim().to_owned());
    let sound = size > 0 && address.checked_add(size).is_some() && !name.is_empty();
    sound.then_some(Function { address, size, name, ..Function::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(map: &PerfMap, range: Range<u64>) -> Vec<&str> {
        map.within(range).into_iter().map(|function| function.name.as_str()).collect()
    }

    #[test]
    fn lines_are_address_size_and_name() {
        let map = PerfMap::parse(b"0x20 10 two words\n10 10 one\nnothing\n30 0 empty\n20 8 newer\n");
        assert_eq!(names(&map, 0x10..0x30), ["two words", "one", "newer"]);
        assert_eq!(names(&map, 0x11..0x20), [""; 0]);
    }

    #[test]
    fn what_of_a_map_is_too_much_is_told() {
        let path = std::env::temp_dir().join(format!("pt-capture-perf-map-{}", std::process::id()));
        std::fs::write(&path, b"10 1 one\n20 1 two\n30 1 three\n").unwrap();
        let (map, left_out) = PerfMap::read_up_to(&path, 22).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(names(&map, 0..u64::MAX), ["one", "two"]);
        let what = format!("{}: it has 29 bytes: names behind the first 22 are left out", path.display());
        assert_eq!(left_out, Some(what));
    }
}
