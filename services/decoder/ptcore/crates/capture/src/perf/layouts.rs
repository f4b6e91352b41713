//! What stands behind the records of a loose file, which does not say: `sample_type` of perf_event_attr, found from the records.

use super::attributes::Attributes;
use super::record::{kind, Record};
use super::sample_type as field;
use std::collections::BTreeMap;

/// The layouts of one file: its events need not have the same one.
pub struct Layouts {
    /// By the size of what stands behind a record, in words.
    by_size: BTreeMap<usize, Attributes>,
    /// Of records of which it is not known how large they are themselves.
    other: Attributes,
    /// Records tell that none of those that are tried is theirs.
    pub doubt: Option<String>,
}

/// What may stand behind who it was, in this order (perf_event_open(2)).
const BEHIND: [u64; 5] = [field::TIME, field::ID, field::STREAM_ID, field::CPU, field::IDENTIFIER];
/// Times are nanoseconds since the machine was started; numbers of events and cores are below, which are counted from 1 and 0 on.
const FIRST_TIME: u64 = 1 << 32;
const MAX_CORES: u64 = 1 << 16;

impl Layouts {
    /// `core`: all records are said to be of it.
    pub fn of<'d>(records: impl Iterator<Item = Record<'d>>, core: Option<u32>) -> Self {
        // What stands behind records of the kernel; perf has zeros behind its own (tools/perf/util/synthetic-events.c of Linux).
        let mut by_size: BTreeMap<usize, Vec<Row>> = BTreeMap::new();
        let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
        for record in records {
            let Some(words) = behind(&record) else { continue };
            *counts.entry(words.len()).or_default() += 1;
            let rows = by_size.entry(words.len()).or_default();
            if words.iter().any(|&word| word != 0) {
                rows.push(Row { who: who(&record), words });
            }
        }
        let mut doubt = None;
        let mut found = |(size, rows): (usize, Vec<Row>)| {
            let fits_of = |core| candidates(size, core).find(|&sample_type| fits(sample_type, &rows, core));
            // A name may be wrong.
            let found = fits_of(core).or_else(|| fits_of(None));
            if found.is_none() {
                let wanted = "pid and tid, time, core, number of the event";
                doubt.get_or_insert(format!(
                    "what stands behind its records (sample_type) cannot be told from them: it is taken for {wanted}"
                ));
            }
            (size, found.map_or_else(Attributes::usual, Attributes::loose))
        };
        let by_size: BTreeMap<_, _> = by_size.into_iter().map(&mut found).collect();
        let most = counts.iter().max_by_key(|(_, &count)| count).map(|(size, _)| *size);
        let other = most.and_then(|size| by_size.get(&size)).cloned().unwrap_or_else(Attributes::usual);
        Layouts { by_size, other, doubt }
    }

    pub fn get(&self, record: &Record<'_>) -> &Attributes {
        behind(record).and_then(|words| self.by_size.get(&words.len())).unwrap_or(&self.other)
    }
}

struct Row {
    /// Process and thread that the record itself is of.
    who: Option<(u32, u32)>,
    words: Vec<u64>,
}

/// Layouts of this size, those first that perf asks for.
fn candidates(size: usize, core: Option<u32>) -> impl Iterator<Item = u64> {
    let subset = |bits: u32| -> u64 { (0..5).filter(|bit| bits >> bit & 1 != 0).map(|bit| BEHIND[bit]).sum() };
    let rank = |sample_type: &u64| {
        let has = |bit| sample_type & bit != 0;
        [has(field::STREAM_ID), has(field::ID), !has(field::IDENTIFIER), !has(field::CPU)]
    };
    let mut all: Vec<_> = (0..1 << BEHIND.len())
        .map(subset)
        .filter(|sample_type| sample_type.count_ones() as usize + 1 == size)
        .filter(|sample_type| core.is_none() || sample_type & field::CPU != 0)
        .collect();
    all.sort_by_key(rank);
    // Without anything there is nothing to find out.
    let none = (size == 0).then_some(0);
    none.into_iter().chain(all.into_iter().map(|sample_type| sample_type | field::TID))
}

fn fits(sample_type: u64, rows: &[Row], core: Option<u32>) -> bool {
    if sample_type == 0 {
        return true;
    }
    // A thread may tell of another one, as when it names it.
    let told: Vec<_> =
        rows.iter().filter_map(|row| Some(row.who? == (row.words[0] as u32, (row.words[0] >> 32) as u32))).collect();
    let same = told.iter().filter(|&&same| same).count();
    if 2 * same < told.len() {
        return false;
    }
    rows.iter().all(|row| {
        let mut event = None;
        let parts = BEHIND.into_iter().filter(|part| sample_type & part != 0);
        parts.zip(&row.words[1..]).all(|(part, &word)| match part {
            field::TIME => word == 0 || word >= FIRST_TIME,
            field::CPU => word < MAX_CORES && core.is_none_or(|core| word == 0 || word == u64::from(core)),
            field::STREAM_ID => (1..FIRST_TIME).contains(&word),
            // The same event twice.
            _ => (1..FIRST_TIME).contains(&word) && *event.get_or_insert(word) == word,
        })
    })
}

fn who(record: &Record<'_>) -> Option<(u32, u32)> {
    let told = matches!(record.kind, kind::MMAP | kind::MMAP2 | kind::COMM | kind::ITRACE_START);
    let half = |at: usize| Some(u32::from_le_bytes(record.body.get(at..at + 4)?.try_into().ok()?));
    half(0).zip(half(4)).filter(|_| told)
}

/// What stands behind a record, where it is known how large that is itself: texts are filled up to eight bytes.
fn behind(record: &Record<'_>) -> Option<Vec<u64>> {
    let text = |at: usize| {
        let length = record.body.get(at..)?.iter().position(|&byte| byte == 0)?;
        Some((at + length + 1).next_multiple_of(8))
    };
    let own = match record.kind {
        kind::SWITCH => 0,
        kind::ITRACE_START | kind::SWITCH_CPU_WIDE | kind::LOST_SAMPLES => 8,
        kind::LOST => 16,
        kind::FORK | kind::EXIT | kind::AUX => 24,
        kind::COMM => text(8)?,
        kind::MMAP => text(32)?,
        kind::MMAP2 => text(64)?,
        _ => return None,
    };
    let rest = record.body.get(own..)?;
    let words: Vec<_> =
        rest.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default())).collect();
    (rest.len() % 8 == 0 && words.len() <= 1 + BEHIND.len()).then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::attributes::SampleId;
    use crate::perf::recording::{halves, text, words, Pipe};

    const T: u64 = 1 << 40;

    /// What stands behind a record.
    fn id(sample_type: u64, [pid, tid]: [u32; 2], time: u64, core: u32, event: u64) -> Vec<u8> {
        let parts = [
            (field::TID, halves(&[pid, tid])),
            (field::TIME, words(&[time])),
            (field::ID, words(&[event])),
            (field::STREAM_ID, words(&[event + 1])),
            (field::CPU, halves(&[core, 0])),
            (field::IDENTIFIER, words(&[event])),
        ];
        parts.into_iter().filter(|(part, _)| sample_type & part != 0).flat_map(|(_, bytes)| bytes).collect()
    }

    /// Records of the kernel and, in front of them, one of perf's own; the ids that are read, of the latter last.
    fn read(sample_type: u64, core: Option<u32>) -> (Vec<SampleId>, Option<String>) {
        let mut pipe = Pipe(Vec::new());
        let mut add = |kind, body: &[u8], id: Vec<u8>| pipe.record(kind, 0, &[body, &id].concat());
        let behind = |who, time, event| id(sample_type, who, time, 3, event);
        let name = |who: [u32; 2], name| [halves(&who), text(name)].concat();
        add(3, &name([7, 7], "seven77"), vec![0; behind([0, 0], 0, 0).len()]);
        add(12, &halves(&[7, 9]), behind([7, 9], T, 70_000));
        add(3, &name([7, 9], "a"), behind([7, 9], T + 5, 70_000));
        // One that another one named.
        add(3, &name([7, 7], "b"), behind([7, 9], T + 6, 70_000));
        add(14, &[], behind([7, 9], T + 7, 70_001));
        let (mut all, mut at) = (Vec::new(), 0);
        while let Some(record) = Record::at(&pipe.0, at).unwrap() {
            at += 8 + record.body.len();
            all.push(record);
        }
        let layouts = Layouts::of(all.iter().copied(), core);
        let mut ids: Vec<_> = all.iter().map(|record| layouts.get(record).sample_id(record.body)).collect();
        ids.rotate_left(1);
        (ids, layouts.doubt)
    }

    #[test]
    fn what_stands_behind_records_is_found_whatever_perf_was_told() {
        use field::{CPU, ID, IDENTIFIER, STREAM_ID, TID, TIME};
        for (sample_type, core) in [
            (TID | TIME | CPU | IDENTIFIER, None),
            (TID | TIME | CPU | IDENTIFIER, Some(3)),
            (TID | TIME | CPU | IDENTIFIER, Some(4)),
            (TID | TIME | IDENTIFIER, None),
            (TID | IDENTIFIER, None),
            (TID | CPU | IDENTIFIER, None),
            (TID | TIME | CPU, Some(3)),
            (TID | TIME, None),
            (TID, None),
            (TID | TIME | ID | CPU, None),
            (TID | TIME | ID | CPU, Some(3)),
            (TID | TIME | ID | STREAM_ID | CPU | IDENTIFIER, None),
        ] {
            let (ids, doubt) = read(sample_type, core);
            let has = |part| sample_type & part != 0;
            for (found, time) in ids.iter().zip([T, T + 5, T + 6, T + 7]) {
                let time = has(TIME).then_some(time);
                let wanted = SampleId { pid: Some(7), tid: Some(9), time, cpu: has(CPU).then_some(3) };
                assert_eq!(*found, wanted, "{sample_type:x}");
            }
            assert_eq!((ids[4].tid, doubt), (Some(0), None), "{sample_type:x}");
        }
        let (ids, doubt) = read(0, None);
        assert_eq!((ids, doubt), (vec![SampleId::default(); 5], None));
    }

    #[test]
    fn what_is_behind_records_and_fits_nothing_is_told() {
        let (_, doubt) = read(field::TIME | field::CPU, None);
        assert!(doubt.unwrap().starts_with("what stands behind its records (sample_type) cannot be told from them: "));
    }
}
