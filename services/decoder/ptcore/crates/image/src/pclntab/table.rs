//! The parts of the table, and what they tell of an address.

use super::numbers::{u32_at, u64_at, varint};
use super::{GoFunction, WORD};
use crate::name::MAX_NAME;

const MAGIC_1_2: u32 = 0xffff_fffb;
const MAGIC_1_16: u32 = 0xffff_fffa;
const MAGIC_1_18: u32 = 0xffff_fff0;
const MAGIC_1_20: u32 = 0xffff_fff1;
const NO_FILE: u32 = u32::MAX;

/// The table's parts.
pub struct Table<'t> {
    /// Addresses are offsets of 4 bytes from `text`.
    pub(super) relative: bool,
    text: u64,
    /// What the header says of `text`; 0 from Go 1.26 on and where the loader is to fill it in.
    pub(super) header_text: u64,
    functions: usize,
    names: &'t [u8],
    /// Files by compilation unit; empty before Go 1.16.
    units: &'t [u8],
    files: &'t [u8],
    values: &'t [u8],
    entries: &'t [u8],
    /// Pairs of a function's address and where its entry is, and the end of the last function.
    list: &'t [u8],
    quantum: u64,
}

impl<'t> Table<'t> {
    pub(super) fn read(data: &'t [u8], text: u64) -> Option<Table<'t>> {
        let magic = u32_at(data, 0)?;
        let (zeros, quantum, pointer) = (data.get(4..6)?, *data.get(6)?, *data.get(7)?);
        if zeros != [0, 0] || !matches!(quantum, 1 | 2 | 4) || usize::from(pointer) != WORD {
            return None;
        }
        let word = |number: usize| u64_at(data, WORD + number * WORD);
        let part = |number: usize| data.get(usize::try_from(word(number)?).ok()?..);
        let functions = usize::try_from(word(0)?).ok().filter(|&count| count < data.len())?;
        let plain = Table {
            relative: false,
            text,
            header_text: 0,
            functions,
            names: data,
            units: &[],
            files: &[],
            values: data,
            entries: data,
            list: data.get(2 * WORD..)?,
            quantum: quantum.into(),
        };
        let table = match magic {
            MAGIC_1_18 | MAGIC_1_20 => Table {
                relative: true,
                header_text: word(2)?,
                names: part(3)?,
                units: part(4)?,
                files: part(5)?,
                values: part(6)?,
                entries: part(7)?,
                list: part(7)?,
                ..plain
            },
            MAGIC_1_16 => Table {
                names: part(2)?,
                units: part(3)?,
                files: part(4)?,
                values: part(5)?,
                entries: part(6)?,
                list: part(6)?,
                ..plain
            },
            MAGIC_1_2 => {
                let files = u32_at(data, 2 * WORD + functions * 2 * WORD + WORD)?;
                Table { files: data.get(files as usize..)?, ..plain }
            }
            _ => return None,
        };
        (table.list.len() >= table.width() * (2 * functions + 1)).then_some(table)
    }

    /// All functions with a name, by address.
    pub fn functions(&self) -> impl Iterator<Item = GoFunction<'t>> + '_ {
        (0..self.functions).filter_map(|number| {
            let (start, end) = (self.address(number)?, self.address(number + 1)?);
            let name = text_at(self.names, self.field(number, 1)?)?;
            (start < end && !name.is_empty()).then_some(GoFunction { start, end, name })
        })
    }

    /// File and line of the instruction at `address`.
    pub fn line(&self, address: u64) -> Option<(String, u32)> {
        let number = self.function_at(address)?;
        let start = self.address(number)?;
        let value = |field| self.value(self.field(number, field)?, start, address);
        let (file, line) = (value(5)?, u32::try_from(value(6)?).ok()?);
        let name = if self.units.is_empty() {
            let offset = u32_at(self.files, usize::try_from(file).ok().filter(|&file| file > 0)?.checked_mul(4)?)?;
            text_at(self.names, offset)?
        } else {
            let index = self.field(number, 8)?.checked_add(u32::try_from(file).ok()?)?;
            let offset = u32_at(self.units, (index as usize).checked_mul(4)?).filter(|&offset| offset != NO_FILE)?;
            text_at(self.files, offset)?
        };
        Some((String::from_utf8_lossy(name).into_owned(), line))
    }

    /// The number of the last function that begins at or before the address.
    fn function_at(&self, address: u64) -> Option<usize> {
        let (mut low, mut high) = (0, self.functions);
        while low < high {
            let middle = low.midpoint(high);
            if self.address(middle)? <= address {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let number = low.checked_sub(1)?;
        (address < self.address(number + 1)?).then_some(number)
    }

    fn width(&self) -> usize {
        if self.relative {
            4
        } else {
            WORD
        }
    }

    pub(super) fn listed(&self, index: usize) -> Option<u64> {
        if self.relative {
            u32_at(self.list, index * 4).map(u64::from)
        } else {
            u64_at(self.list, index * WORD)
        }
    }

    fn address(&self, number: usize) -> Option<u64> {
        self.listed(2 * number).map(|address| address.wrapping_add(self.text))
    }

    /// A field of `runtime._func`; the first, numbered 0, is the address.
    fn field(&self, number: usize, field: usize) -> Option<u32> {
        let function = usize::try_from(self.listed(2 * number + 1)?).ok()?;
        u32_at(self.entries, function.checked_add(self.width() + (field - 1) * 4)?)
    }

    /// What a table of values by address has for `address`. It is a list of differences, ended by a zero.
    fn value(&self, offset: u32, start: u64, address: u64) -> Option<i32> {
        let mut rest = self.values.get(offset as usize..)?;
        let (mut value, mut end, mut first) = (-1i32, start, true);
        loop {
            let step = varint(&mut rest)?;
            if step == 0 && !first {
                return None;
            }
            first = false;
            value = value.wrapping_add(if step & 1 != 0 { !(step >> 1) as i32 } else { (step >> 1) as i32 });
            // Each is of some code: a list that goes on for ever without is damaged.
            let size = varint(&mut rest).filter(|&size| size > 0)?;
            end = end.wrapping_add(u64::from(size) * self.quantum);
            if address < end {
                return Some(value);
            }
        }
    }
}

fn text_at(data: &[u8], offset: u32) -> Option<&[u8]> {
    let text = data.get(offset as usize..)?;
    text[..text.len().min(MAX_NAME)].split(|&byte| byte == 0).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table as Go 1.16 and 1.2 write it, with one function `main.main` of 16 bytes at 0x1000: line 7 for 4 bytes,
    /// then line 9, all of it in `main.go`.
    fn old_table(magic: u32) -> Vec<u8> {
        let new = magic == MAGIC_1_16;
        let words = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
        let (names, units, files, values, entries) = (0x40, 0x50, 0x58, 0x60, 0x70);
        let mut data = magic.to_le_bytes().to_vec();
        data.extend([0, 0, 1, 8]);
        // Before Go 1.16 the list follows the header, and where the list of files is follows the list.
        data.extend(match new {
            true => words(&[1, 1, names, units, files, values, entries]),
            false => words(&[1, 0x1000, entries + 24, 0x1010, units]),
        });
        let mut put = |at: u64, bytes: &[u8]| {
            data.resize(at as usize, 0);
            data.extend(bytes);
        };
        put(names, b"main.main");
        // Files are numbered from 1 on before Go 1.16; the number in front is how many there are.
        put(units, &if new { words(&[0]) } else { words(&[2 | files << 32]) });
        put(files, b"main.go");
        // Differences, each doubled, and for how many bytes: from -1 to 7 for 4 bytes, to 9 for 12; to 0 or 1 for 16.
        put(values, &[16, 4, 4, 12, 0, 0, 0, 0, if new { 2 } else { 4 }, 16]);
        put(entries, &words(&[0x1000, 24, 0x1010, 0x1000]));
        let (name, lines) = if new { (0, 0) } else { (names, values) };
        let fields = [name, 0, 0, 0, lines + 8, lines, 0, 0];
        put(entries + 32, &fields.iter().flat_map(|&field| (field as u32).to_le_bytes()).collect::<Vec<_>>());
        data
    }

    #[test]
    fn tables_of_older_versions() {
        for magic in [MAGIC_1_16, MAGIC_1_2] {
            let data = old_table(magic);
            let table = Table::read(&data, 0).unwrap();
            let functions: Vec<_> = table.functions().map(|found| (found.start, found.end, found.name)).collect();
            assert_eq!(functions, [(0x1000, 0x1010, &b"main.main"[..])], "{magic:x}");
            let line = |address| table.line(address).map(|(file, line)| format!("{file}:{line}"));
            assert_eq!([0xfff, 0x1010].map(line), [None, None]);
            assert_eq!([0x1000, 0x1003].map(line), [(); 2].map(|()| Some("main.go:7".to_owned())));
            assert_eq!([0x1004, 0x100f].map(line), [(); 2].map(|()| Some("main.go:9".to_owned())));
        }
    }

    #[test]
    fn a_line_of_no_code_ends_a_list() {
        let mut data = old_table(MAGIC_1_16);
        // To 7 for nothing, to 9 for all.
        data[0x60..0x65].copy_from_slice(&[16, 0, 4, 16, 0]);
        assert_eq!(Table::read(&data, 0).unwrap().line(0x1005), None);
    }

    #[test]
    fn damaged_tables_are_read_without_a_panic() {
        [MAGIC_1_16, MAGIC_1_2].map(old_table).iter().for_each(|whole| damage(whole));
    }

    fn damage(whole: &[u8]) {
        for end in 0..whole.len() {
            if let Some(table) = Table::read(&whole[..end], 0) {
                table.functions().for_each(drop);
                let _ = table.line(0x1005);
            }
        }
        for at in 0..whole.len() {
            for bit in [0x01, 0x80, 0xff] {
                let mut data = whole.to_vec();
                data[at] ^= bit;
                if let Some(table) = Table::read(&data, 0) {
                    table.functions().for_each(drop);
                    let _ = table.line(0x1005);
                }
            }
        }
    }
}
