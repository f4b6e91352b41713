//! Where exceptions that pass through a function are caught or cleaned up after: at landing pads.
//!
//! The table of `.gcc_except_table`: "Exception Handling Tables" of the Itanium C++ ABI's working papers, as GCC's
//! `unwind-c.c` reads it; pointer encodings from the Linux Standard Base, "DWARF Extensions".

use crate::elf_file::File;
use crate::unwind::each;
use gimli::constants::{self, DwEhPe};
use gimli::{EndianSlice, LittleEndian, Reader};
use object::{Object, ObjectSection};
use std::ops::Range;

/// A stretch of code, and where exceptions go on that come out of calls in it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Catch {
    pub pad: u64,
    start: u64,
    end: u64,
}

/// All landing pads of a file.
pub struct Catches(Vec<Catch>);

impl Catches {
    pub fn of(file: &File<'_>) -> Catches {
        let mut all = Vec::new();
        if let Some(mut tables) = Tables::open(file) {
            each(file, |description| {
                if let Some(table) = description.handlers() {
                    all.append(&mut tables.catches(table, description.bounds()));
                }
            });
        }
        all.sort_unstable();
        all.dedup();
        all.shrink_to_fit();
        Catches(all)
    }

    /// As [`crate::Symbols::caught_at`], in the file's own addresses.
    pub fn caught_at(&self, pad: u64) -> Option<Vec<Range<u64>>> {
        let first = self.0.partition_point(|one| one.pad < pad);
        let of_pad = self.0[first..].iter().take_while(|one| one.pad == pad);
        // The call that an unwinder looks for is the instruction before, also where it is the last one of its stretch.
        let returns: Vec<_> = of_pad.map(|one| one.start.saturating_add(1)..one.end.saturating_add(1)).collect();
        (!returns.is_empty()).then_some(returns)
    }
}

/// The tables of a file.
pub struct Tables<'f> {
    address: u64,
    data: &'f [u8],
    /// How many more bytes are read: tables that overlap are damaged.
    left: usize,
}

impl<'f> Tables<'f> {
    pub fn open(file: &File<'f>) -> Option<Tables<'f>> {
        let section = file.section_by_name(".gcc_except_table")?;
        let data = section.data().ok()?;
        Some(Tables { address: section.address(), data, left: data.len() })
    }

    /// What the table at `address` says of the code in these bounds, as far as it can be read.
    pub fn catches(&mut self, address: u64, bounds: (u64, u64)) -> Vec<Catch> {
        let mut catches = Vec::new();
        self.read(address, bounds, &mut catches);
        catches
    }

    fn read(&mut self, address: u64, (start, end): (u64, u64), catches: &mut Vec<Catch>) -> Option<()> {
        let offset = usize::try_from(address.checked_sub(self.address)?).ok()?;
        let mut table = Table { address: self.address, whole: self.data, rest: slice(self.data.get(offset..)?) };
        let base = match table.encoding()? {
            constants::DW_EH_PE_omit => start,
            encoding => table.pointer(encoding)?,
        };
        if table.encoding()? != constants::DW_EH_PE_omit {
            table.rest.read_uleb128().ok()?;
        }
        let encoding = table.encoding()?;
        let size = table.rest.read_uleb128().ok().and_then(|size| usize::try_from(size).ok())?;
        table.rest = table.rest.split(size.min(table.rest.len()).min(self.left)).ok()?;
        let mut behind = start;
        while !table.rest.is_empty() {
            let before = table.rest.len();
            // Start and length of the stretch that the pad is for; 0 is no pad.
            let [from, length, pad] = [table.value(encoding)?, table.value(encoding)?, table.value(encoding)?];
            table.rest.read_uleb128().ok()?;
            self.left -= before - table.rest.len();
            let from = start.checked_add(from).filter(|&from| from >= behind)?;
            // Clang has the tables of all parts of a function end where the last one does: here begins that of the next part.
            behind = from.checked_add(length).filter(|&behind| behind <= end)?;
            if pad != 0 {
                catches.push(Catch { pad: base.wrapping_add(pad), start: from, end: behind });
            }
        }
        Some(())
    }
}

struct Table<'f> {
    address: u64,
    whole: &'f [u8],
    rest: EndianSlice<'f, LittleEndian>,
}

impl Table<'_> {
    fn encoding(&mut self) -> Option<DwEhPe> {
        self.rest.read_u8().ok().map(DwEhPe)
    }

    fn pointer(&mut self, encoding: DwEhPe) -> Option<u64> {
        let here = self.rest.slice().as_ptr() as usize - self.whole.as_ptr() as usize;
        let base = match encoding.application() {
            constants::DW_EH_PE_absptr => 0,
            constants::DW_EH_PE_pcrel => self.address.wrapping_add(here as u64),
            _ => return None,
        };
        (!encoding.is_indirect()).then(|| Some(base.wrapping_add(self.value(encoding)?)))?
    }

    fn value(&mut self, encoding: DwEhPe) -> Option<u64> {
        let rest = &mut self.rest;
        let value = match encoding.format() {
            constants::DW_EH_PE_absptr | constants::DW_EH_PE_udata8 | constants::DW_EH_PE_sdata8 => rest.read_u64(),
            constants::DW_EH_PE_uleb128 => rest.read_uleb128(),
            constants::DW_EH_PE_udata2 => rest.read_u16().map(u64::from),
            constants::DW_EH_PE_udata4 => rest.read_u32().map(u64::from),
            constants::DW_EH_PE_sleb128 => rest.read_sleb128().map(|value| value as u64),
            constants::DW_EH_PE_sdata2 => rest.read_i16().map(|value| i64::from(value) as u64),
            constants::DW_EH_PE_sdata4 => rest.read_i32().map(|value| i64::from(value) as u64),
            _ => return None,
        };
        value.ok()
    }
}

fn slice(data: &[u8]) -> EndianSlice<'_, LittleEndian> {
    EndianSlice::new(data, LittleEndian)
}
