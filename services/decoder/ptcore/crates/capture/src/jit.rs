//! Code that a program wrote at run time and told in a jitdump file.
//!
//! Format: tools/perf/Documentation/jitdump-specification.txt of Linux.

mod generated;
mod written;

pub use generated::{Generated, Timeline, Told, What};

use crate::fields::{Fields, Short};
use crate::files::DELETED;
use crate::spaces::Mapping;
use crate::{Bytes, Conversion};
use std::collections::HashMap;
use std::path::PathBuf;
use written::Written;

const MAGIC: u32 = 0x4a69_5444;
const SWAPPED: u32 = 0x4454_694a;
const HEAD: usize = 16;
/// The head of the file, in the version of the format that there is.
const FILE_HEAD: usize = 40;

const CODE_LOAD: u32 = 0;
const CODE_MOVE: u32 = 1;

/// Times are TSC ticks rather than nanoseconds.
const FLAG_TSC: u64 = 1;

/// Such a clock runs beside that of perf: where nothing took the place of other code that is no matter. The agent of perf for
/// Java has the variable (tools/perf/jvmti/jvmti_agent.c of Linux).
const DOUBT: &str =
    "its times are not those of the TSC: when code took the place of other code is a guess; have them be \
                     TSC times (JITDUMP_USE_ARCH_TIMESTAMP=1)";

/// Larger records are hardly those of functions.
const LARGEST: usize = 1 << 20;

/// The file's name when it is a jitdump, which a program maps so that perf knows of it: `jit-PID.dump`.
pub fn is_dump(name: &str) -> Option<&str> {
    let file = name.strip_suffix(DELETED).unwrap_or(name).rsplit('/').next()?;
    let pid = file.strip_prefix("jit-")?.strip_suffix(".dump")?;
    (!pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit())).then_some(file)
}

/// The code of a jitdump by the time (TSC ticks) at which it was there.
pub struct Dump {
    pub code: Vec<(u64, Mapping)>,
    /// Its times are those of the TSC, not of a clock beside it.
    pub by_tsc: bool,
    /// When the program says that it made the file, TSC ticks by that clock; 0: it does not.
    pub made: u64,
    /// Why the dump was not read to its end, or what of it is in doubt.
    pub damage: Option<String>,
}

/// The file is looked for in the folders, then at `path`.
pub fn read(path: &str, file: &str, folders: &[PathBuf], conversion: Option<Conversion>) -> Result<Dump, String> {
    let inside = folders.iter().map(|folder| folder.join(file)).chain([PathBuf::from(path)]);
    let found = inside.into_iter().find(|path| path.is_file()).ok_or("the jitdump file is not there")?;
    let bytes = Bytes::open(&found).map_err(|error| format!("{}: {error}", found.display()))?;
    parse(&bytes, conversion).map_err(|error| format!("{}: {error}", found.display()))
}

fn parse(data: &[u8], conversion: Option<Conversion>) -> Result<Dump, String> {
    let text = |short: Short| format!("at offset {:#x}: {short}", short.at);
    let mut head = Fields::new(data, 0);
    match head.u32().map_err(text)? {
        MAGIC => {}
        SWAPPED => return Err("it is of a machine of the other byte order".to_owned()),
        other => return Err(format!("it begins with {other:#x}, a jitdump begins with {MAGIC:#x}")),
    }
    let (_version, size) = (head.u32().map_err(text)?, head.u32().map_err(text)?);
    head.bytes(12).map_err(text)?;
    let made = head.u64().map_err(text)?;
    let tsc = head.u64().map_err(text)? & FLAG_TSC != 0;
    let ticks = conversion.filter(|_| !tsc);
    let mut by_index = HashMap::new();
    let mut written = Written::new();
    let mut at = size as usize;
    if !(FILE_HEAD..=data.len()).contains(&at) {
        let there = data.len();
        return Err(format!("its head says that it has {at} bytes itself: that cannot be in a file of {there} bytes"));
    }
    // The program may have been stopped while it wrote: the last record need not be whole.
    while let Some((kind, time, body)) = record(data, at) {
        at += HEAD + body.len();
        let time = ticks.map_or(time, |conversion| conversion.ticks(time));
        let mut fields = Fields::new(body, 16);
        // A record that is damaged costs itself alone.
        match kind {
            CODE_LOAD => {
                if let Ok((address, index, loaded)) = load(&mut fields) {
                    by_index.insert(index, loaded);
                    written.load(time, address, loaded);
                }
            }
            CODE_MOVE => {
                if let Ok((address, index)) = moved(&mut fields) {
                    if let Some(&loaded) = by_index.get(&index) {
                        written.again(time, address, loaded);
                    }
                }
            }
            _ => {}
        }
    }
    let code = written.finish();
    let doubt = (!tsc && written.replaced).then(|| DOUBT.to_owned());
    let unnamed = (written.unnamed > 0)
        .then(|| format!("its code is written over too often: {} functions have no names", written.unnamed));
    let told: Vec<_> = [left_out(data, at), doubt, unnamed].into_iter().flatten().collect();
    let made = if made == 0 { 0 } else { ticks.map_or(made, |conversion| conversion.ticks(made)) };
    Ok(Dump { code, by_tsc: tsc, made, damage: (!told.is_empty()).then(|| told.join("; ")) })
}

fn record(data: &[u8], at: usize) -> Option<(u32, u64, &[u8])> {
    let mut fields = Fields::new(data, at);
    let (kind, size, time) = (fields.u32().ok()?, fields.u32().ok()?, fields.u64().ok()?);
    Some((kind, time, fields.bytes((size as u64).checked_sub(HEAD as u64)?).ok()?))
}

/// A record whose size cannot be does not say where the next one begins: perf ends there, too
/// (tools/perf/util/jitdump.c of Linux, jit_get_next_entry). What a program has not written to its end is no damage.
fn left_out(data: &[u8], at: usize) -> Option<String> {
    let mut fields = Fields::new(data, at);
    let (_kind, size, _time) = (fields.u32().ok()?, fields.u32().ok()?, fields.u64().ok()?);
    let (size, left) = (size as usize, data.len() - at);
    let is_being_written = (left..=LARGEST).contains(&size);
    let what = format!("a record at offset {at:#x} says that it has {size} bytes: it and what follows, {left} bytes");
    (!is_being_written).then(|| what + ", are left out")
}

/// Name and code of a function.
type Loaded<'d> = (&'d [u8], &'d [u8]);

/// Address, index and what a record loads.
fn load<'d>(fields: &mut Fields<'d>) -> Result<(u64, u64, Loaded<'d>), Short> {
    let (address, size, index) = (fields.u64()?, fields.u64()?, fields.u64()?);
    let name = fields.text_bytes();
    Ok((address, index, (name, fields.bytes(size)?)))
}

/// The new address and the index of what a record moves.
fn moved(fields: &mut Fields<'_>) -> Result<(u64, u64), Short> {
    let (_old, new, _size, index) = (fields.u64()?, fields.u64()?, fields.u64()?, fields.u64()?);
    Ok((new, index))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dump(records: &[(u32, u64, Vec<u8>)]) -> Vec<u8> {
        let mut file = Vec::new();
        for word in [MAGIC, 1, 40, 62, 0, 1234] {
            file.extend(word.to_le_bytes());
        }
        file.extend([0; 8]);
        file.extend(FLAG_TSC.to_le_bytes());
        for (kind, time, body) in records {
            file.extend(kind.to_le_bytes());
            file.extend((body.len() as u32 + 16).to_le_bytes());
            file.extend(time.to_le_bytes());
            file.extend(body);
        }
        file
    }

    fn numbers(numbers: &[u64]) -> Vec<u8> {
        let mut body = [7u32.to_le_bytes(), 8u32.to_le_bytes()].concat();
        body.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        body
    }

    #[test]
    fn code_is_there_from_its_time_on_and_where_it_was_moved() {
        let mut load = numbers(&[0x5000, 0x5000, 2, 1]);
        load.extend(b"made\0\x90\xc3");
        let file = dump(&[(0, 100, load.clone()), (1, 200, numbers(&[0x6000, 0x5000, 0x6000, 2, 1])), (9, 0, vec![])]);
        let Dump { code, damage, .. } = parse(&file, None).unwrap();
        assert_eq!(damage, None);
        let places: Vec<_> = code.iter().map(|(tsc, mapping)| (*tsc, mapping.address, mapping.size)).collect();
        assert_eq!(places, [(100, 0x5000, 2), (200, 0x6000, 2)]);
        for end in 0..file.len() {
            let _ = parse(&file[..end], None);
        }
    }

    #[test]
    fn a_record_that_is_damaged_costs_itself_alone() {
        let load = |address, size, name: &[u8]| {
            let mut body = numbers(&[address, address, size, address]);
            body.extend([name, b"\0\x90\xc3"].concat());
            (0, address, body)
        };
        let records = [load(0x5000, 2, b"one"), load(0x6000, 9, b"short"), (0, 0, vec![1; 5]), load(0x7000, 2, b"two")];
        let code = parse(&dump(&records), None).unwrap().code;
        let places: Vec<_> = code.iter().map(|(tsc, mapping)| (*tsc, mapping.address)).collect();
        assert_eq!(places, [(0x5000, 0x5000), (0x7000, 0x7000)]);
    }

    #[test]
    fn a_head_of_a_size_that_cannot_be_is_told() {
        let file = dump(&[(0, 100, numbers(&[0x5000, 0x5000, 2, 1]))]);
        for wrong in [0u32, 39, file.len() as u32 + 1, u32::MAX] {
            let mut file = file.clone();
            file[8..12].copy_from_slice(&wrong.to_le_bytes());
            let refused = parse(&file, None).err().unwrap();
            assert!(refused.starts_with(&format!("its head says that it has {wrong} bytes")), "{refused}");
        }
        assert!(parse(&file[..FILE_HEAD], None).unwrap().code.is_empty());
    }

    #[test]
    fn a_record_that_is_not_whole_ends_the_dump_and_is_told() {
        let mut load = numbers(&[0x5000, 0x5000, 2, 1]);
        load.extend(b"made\0\x90\xc3");
        let file = dump(&[(0, 100, load.clone()), (0, 200, load.clone()), (0, 300, load)]);
        let size = (file.len() - 40) / 3;
        let second = 40 + size;
        // Smaller than its head, larger than what functions have.
        for wrong in [15u32, 1 << 31] {
            let mut file = file.clone();
            file[second + 4..second + 8].copy_from_slice(&wrong.to_le_bytes());
            let Dump { code, damage, .. } = parse(&file, None).unwrap();
            assert_eq!(code.len(), 1);
            let what = format!("it and what follows, {} bytes, are left out", 2 * size);
            assert_eq!(damage, Some(format!("a record at offset {second:#x} says that it has {wrong} bytes: {what}")));
        }
        // The program was stopped while it wrote the head, or the code.
        for written in [5, size - 1] {
            let Dump { code, damage, .. } = parse(&file[..second + written], None).unwrap();
            assert_eq!((code.len(), damage), (1, None));
        }
    }

    #[test]
    fn a_dump_that_is_cut_off_has_its_times_in_doubt_all_the_same() {
        let mut load = numbers(&[0x5000, 0x5000, 2, 1]);
        load.extend(b"made\0\x90\xc3");
        let mut file = dump(&[(0, 100, load.clone()), (0, 200, load)]);
        file[32] = 0;
        file.extend([0; HEAD]);
        let damage = parse(&file, Conversion::new(1, 0, 0)).unwrap().damage.unwrap();
        assert!(damage.starts_with("a record at offset") && damage.ends_with(DOUBT), "{damage}");
    }

    #[test]
    fn times_of_another_clock_are_in_doubt_where_code_took_the_place_of_other_code() {
        let load = |address, index| {
            let mut body = numbers(&[address, address, 2, index]);
            body.extend(b"made\0\x90\xc3");
            (0, 100 * index, body)
        };
        let doubt = |ticks: bool, addresses: [u64; 2]| {
            let mut file = dump(&[load(addresses[0], 1), load(addresses[1], 2)]);
            file[32] = u8::from(ticks);
            parse(&file, Conversion::new(1, 0, 0)).unwrap().damage
        };
        assert_eq!(doubt(false, [0x5000, 0x5001]).as_deref(), Some(DOUBT));
        assert_eq!(doubt(false, [0x5000, 0x5002]), None);
        assert_eq!(doubt(true, [0x5000, 0x5001]), None);
    }

    #[test]
    fn only_jit_pid_dump_is_a_jitdump() {
        assert_eq!(is_dump("/tmp/.debug/jit-77.dump"), Some("jit-77.dump"));
        assert_eq!(is_dump("/tmp/jit-77.dump (deleted)"), Some("jit-77.dump"));
        assert_eq!(is_dump("/tmp/jit-.dump"), None);
        assert_eq!(is_dump("/tmp/jitter.dump"), None);
    }
}
