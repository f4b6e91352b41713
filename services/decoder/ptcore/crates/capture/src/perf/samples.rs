//! PERF_RECORD_SAMPLE: where it was taken, and the packets that lead up to it (`perf record --aux-sample`).

use super::attributes::{Attribute, Attributes, SampleId};
use super::sample_type as field;
use crate::fields::{Fields, Short};
use std::ops::Range;

/// PERF_TYPE_TRACEPOINT.
const TYPE_TRACEPOINT: u32 = 2;

/// Bits of `read_format`: what stands once, and what stands with each counter.
const READ_TIMES: u64 = 3;
const READ_OF_EACH: u64 = 1 << 2 | 1 << 4;
const READ_GROUP: u64 = 1 << 3;
/// Bits of `branch_sample_type`.
const BRANCH_INDEX: u64 = 1 << 17;
const BRANCH_COUNTERS: u64 = 1 << 19;

/// What matters here of a sample.
#[derive(Default)]
pub struct Sample {
    pub id: SampleId,
    /// The id of the event that it is of.
    pub event: Option<u64>,
    /// `config` of the tracepoint that it is of.
    pub tracepoint: Option<u64>,
    /// Where in the record the tracepoint's data are.
    pub raw: Range<usize>,
    /// Where in the record the packets up to it are.
    pub packets: Range<usize>,
}

impl Sample {
    pub fn read(body: &[u8], attributes: &Attributes) -> Result<Sample, Short> {
        let Some(attribute) = attributes.of_sample(body) else { return Ok(Sample::default()) };
        let has = |bit| attribute.sample_type & bit != 0;
        let mut fields = Fields::new(body, 0);
        let mut id = SampleId::default();
        let event = if has(field::IDENTIFIER) { Some(fields.u64()?) } else { None };
        skip(&mut fields, attribute, &[field::IP])?;
        if has(field::TID) {
            (id.pid, id.tid) = (Some(fields.u32()?), Some(fields.u32()?));
        }
        if has(field::TIME) {
            id.time = Some(fields.u64()?);
        }
        skip(&mut fields, attribute, &[field::ADDR, field::ID, field::STREAM_ID])?;
        if has(field::CPU) {
            id.cpu = Some(fields.u32()?);
            fields.u32()?;
        }
        let tracepoint = (attribute.kind == TYPE_TRACEPOINT).then_some(attribute.config);
        let mut sample = Sample { id, event, tracepoint, ..Sample::default() };
        let told = has(field::AUX) || (has(field::RAW) && tracepoint.is_some());
        if !told {
            return Ok(sample);
        }
        skip(&mut fields, attribute, &[field::PERIOD])?;
        skip_up_to_raw(&mut fields, attribute)?;
        if has(field::RAW) {
            let size = fields.u32()?;
            sample.raw = inside(&mut fields, size.into())?;
        }
        if has(field::AUX) {
            skip_up_to_packets(&mut fields, attribute)?;
            let size = fields.u64()?;
            sample.packets = inside(&mut fields, size)?;
        }
        Ok(sample)
    }
}

fn inside(fields: &mut Fields<'_>, size: u64) -> Result<Range<usize>, Short> {
    let from = fields.at();
    fields.bytes(size)?;
    Ok(from..fields.at())
}

/// Passes over those of the fields of eight bytes that are there.
fn skip(fields: &mut Fields<'_>, attribute: &Attribute, bits: &[u64]) -> Result<(), Short> {
    let there = bits.iter().filter(|&bit| attribute.sample_type & bit != 0).count();
    fields.bytes(8 * there as u64).map(drop)
}

fn skip_up_to_raw(fields: &mut Fields<'_>, attribute: &Attribute) -> Result<(), Short> {
    let has = |bit| attribute.sample_type & bit != 0;
    if has(field::READ) {
        let format = attribute.read_format;
        let (once, of_each) = ((format & READ_TIMES).count_ones(), 1 + (format & READ_OF_EACH).count_ones());
        let counters = if format & READ_GROUP != 0 { fields.u64()? } else { 1 };
        skip_words(fields, counters.saturating_mul(of_each.into()).saturating_add(once.into()))?;
    }
    if has(field::CALLCHAIN) {
        let count = fields.u64()?;
        skip_words(fields, count)?;
    }
    Ok(())
}

fn skip_up_to_packets(fields: &mut Fields<'_>, attribute: &Attribute) -> Result<(), Short> {
    let has = |bit| attribute.sample_type & bit != 0;
    if has(field::BRANCH_STACK) {
        let kind = attribute.branch_sample_type;
        let count = fields.u64()?;
        let of_each = if kind & BRANCH_COUNTERS != 0 { 4 } else { 3 };
        let index = u64::from(kind & BRANCH_INDEX != 0);
        skip_words(fields, count.saturating_mul(of_each).saturating_add(index))?;
    }
    if has(field::REGS_USER) {
        skip_registers(fields, attribute.sample_regs_user)?;
    }
    if has(field::STACK_USER) {
        let size = fields.u64()?;
        fields.bytes(size)?;
        skip_words(fields, u64::from(size != 0))?;
    }
    // One of the two.
    let weight = if has(field::WEIGHT) { field::WEIGHT } else { field::WEIGHT_STRUCT };
    skip(fields, attribute, &[weight, field::DATA_SRC, field::TRANSACTION])?;
    if has(field::REGS_INTR) {
        skip_registers(fields, attribute.sample_regs_intr)?;
    }
    skip(fields, attribute, &[field::PHYS_ADDR, field::CGROUP, field::DATA_PAGE_SIZE, field::CODE_PAGE_SIZE])
}

fn skip_words(fields: &mut Fields<'_>, count: u64) -> Result<(), Short> {
    fields.bytes(count.saturating_mul(8)).map(drop)
}

/// Their ABI; none are there without one.
fn skip_registers(fields: &mut Fields<'_>, mask: u64) -> Result<(), Short> {
    let abi = fields.u64()?;
    skip_words(fields, if abi == 0 { 0 } else { mask.count_ones().into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::record::{kind, Record};
    use crate::perf::recording::{halves, program, runs, words, Folder, Pipe, NOP_RET, USER};
    use crate::{Of, Options};
    use pt_packet::{writer::write, Compression, Ip, Packet};
    use std::process::Command;

    const ID: u64 = 77;

    /// A recording of which samples have all these fields.
    fn recording(sample_type: u64, read_format: u64, branches: u64) -> Pipe {
        let mut pipe = Pipe::new();
        // Of each kind of registers some.
        let registers = [words(&[branches, 0b1011]), halves(&[64, 0]), words(&[0b111])].concat();
        let attribute =
            [halves(&[1, 104]), words(&[0, 0, sample_type, read_format, 1 << 18, 0, 0, 0]), registers].concat();
        pipe.record(64, 0, &[attribute, words(&[0, ID])].concat());
        pipe
    }

    /// All samples of what was written into a pipe, and what stands behind them.
    fn samples(data: &[u8], mut each: impl FnMut(&[u8], &Attributes)) -> usize {
        let (mut attributes, mut at, mut count) = (Attributes::default(), 16, 0);
        while let Some(record) = Record::at(data, at).unwrap() {
            at += 8 + record.body.len();
            let mut fields = Fields::new(record.body, 0);
            match record.kind {
                kind::HEADER_ATTR => {
                    let attribute = Attribute::read(&mut fields).unwrap();
                    attributes.add(attribute, std::iter::from_fn(|| fields.u64().ok()));
                }
                kind::TRACING_DATA => at += fields.u32().unwrap().next_multiple_of(8) as usize,
                kind::SAMPLE => {
                    each(record.body, &attributes);
                    count += 1;
                }
                _ => {}
            }
        }
        count
    }

    fn ran(tsc: u64) -> Vec<u8> {
        let mut data = Vec::new();
        let full = |payload| Ip { compression: Compression::Full, payload };
        let begins = [Packet::Psb, Packet::Tsc(tsc), Packet::Psbend, Packet::TipPge(full(USER))];
        let ends = [Packet::Tsc(tsc + 1), Packet::TipPgd(full(1))];
        begins.into_iter().chain(ends).for_each(|packet| write(&mut data, packet));
        data.resize(data.len().next_multiple_of(8), 0);
        data
    }

    #[test]
    fn packets_are_found_behind_all_else_that_a_sample_may_have() {
        let all = (1 << 24) - 1;
        let group = READ_GROUP | 1 << 2 | READ_TIMES;
        let mut pipe = recording(all, group, BRANCH_INDEX);
        let packets = ran(100);
        let head = [
            words(&[ID, 0x1000]),
            halves(&[7, 8]),
            words(&[100, 0x2000, ID, 5]),
            halves(&[3, 0]),
            words(&[1]),
            // Two counters with their ids, and their times.
            words(&[2, 10, 11, 100, ID, 200, ID + 1]),
            // Callers, raw data, branches and where the newest of them is.
            words(&[2, 0x1000, 0x1001]),
            [halves(&[12]), vec![0xaa; 12]].concat(),
            words(&[1, 9, 0x1000, 0x2000, 0]),
            // Registers, the stack and how much of it there was, weight, source, transaction, registers: none of these.
            words(&[2, 1, 2, 3]),
            [words(&[16]), vec![0xbb; 16], words(&[8])].concat(),
            words(&[1, 2, 3]),
            words(&[0]),
            // Physical address, cgroup, sizes of pages.
            words(&[1, 2, 4096, 4096]),
            words(&[packets.len() as u64]),
        ]
        .concat();
        pipe.record(kind::SAMPLE, 0, &[&head[..], &packets].concat());
        let found = samples(&pipe.0, |body, attributes| {
            let Sample { id, packets, raw, .. } = Sample::read(body, attributes).unwrap();
            assert_eq!(body[raw], [0xaa; 12]);
            assert_eq!(id, SampleId { pid: Some(7), tid: Some(8), time: Some(100), cpu: Some(3) });
            assert_eq!(packets, head.len()..body.len());
            for short in 0..body.len() {
                assert!(Sample::read(&body[..short], attributes).is_err(), "{short}");
            }
        });
        assert_eq!(found, 1);
        // When the recording began is told by the sample, not by what its last bytes may look like.
        let folder = Folder::new("sample");
        assert_eq!(pipe.open(&folder, Options::default()).config.reference_tsc, 100);
    }

    #[test]
    fn samples_of_perf_itself_are_read_to_their_end() {
        let everything =
            "-e cpu-clock -c 200000 -d -W --call-graph dwarf,512 --phys-data --sample-cpu --data-page-size \
                          --code-page-size --intr-regs --user-regs=ax,bx,cx --transaction";
        for options in
            [everything, "-e {cpu-clock,task-clock}:S -c 300000 -g", "-a -e cpu-clock -s --sample-identifier"]
        {
            let mut perf = Command::new("perf");
            perf.args(["record", "-q", "-o", "-"]).args(options.split_whitespace());
            let Ok(output) = perf.args(["sh", "-c", "ls -R /usr/lib > /dev/null"]).output() else {
                return eprintln!("skipped: perf is not installed (Debian package linux-perf)");
            };
            if !output.status.success() {
                return eprintln!("skipped: perf may not record: {}", String::from_utf8_lossy(&output.stderr));
            }
            let found = samples(&output.stdout, |body, attributes| {
                let attribute = attributes.of_sample(body).unwrap();
                let mut fields = Fields::new(body, 0);
                let head = [field::IDENTIFIER, field::IP, field::TID, field::TIME, field::ADDR, field::ID];
                skip(&mut fields, attribute, &head).unwrap();
                skip(&mut fields, attribute, &[field::STREAM_ID, field::CPU, field::PERIOD]).unwrap();
                skip_up_to_raw(&mut fields, attribute).unwrap();
                if attribute.sample_type & field::RAW != 0 {
                    let size = fields.u32().unwrap();
                    fields.bytes(size.into()).unwrap();
                }
                skip_up_to_packets(&mut fields, attribute).unwrap();
                assert_eq!(fields.left(), 0, "{options}: {attribute:x?}");
            });
            assert!(found > 0, "{options}");
        }
    }

    #[test]
    fn packets_that_several_samples_have_run_once() {
        let folder = Folder::new("sampled");
        program(&folder, "work", &NOP_RET);
        let mut pipe = recording(field::IDENTIFIER | field::TID | field::TIME | field::CPU | field::AUX, 0, 0);
        pipe.maps((7, 7, 5, 0), USER, 4, 0x1000, "/work");
        pipe.enters((7, 7, 10, 3));
        let sample = |tsc: u64, packets: &[u8]| {
            let size = words(&[packets.len() as u64]);
            [&words(&[ID])[..], &halves(&[7, 7]), &words(&[tsc]), &halves(&[3, 0]), &size, packets].concat()
        };
        pipe.record(kind::SAMPLE, 0, &sample(110, &ran(100)));
        pipe.record(kind::SAMPLE, 0, &sample(210, &[ran(100), ran(200)].concat()));
        pipe.record(kind::SAMPLE, 0, &sample(410, &ran(400)));
        let capture = pipe.open(&folder, Options::default());
        let [stream] = &capture.streams[..] else { panic!("{} streams", capture.streams.len()) };
        assert_eq!((stream.of, &stream.lost[..]), (Of::Core(3), &[2 * ran(0).len()][..]));
        assert_eq!(runs(&capture), [(7, vec![2, 2, 2])]);
        // What it ran between them on other cores is not told.
        assert!(capture.stays.is_none());
    }

    #[test]
    fn packets_of_a_sample_that_does_not_say_where_it_was_taken_are_those_of_its_events_core_or_thread() {
        let folder = Folder::new("opened");
        program(&folder, "work", &NOP_RET);
        let opened = |cpu: u64, tid: u64| {
            let mut pipe = recording(field::IDENTIFIER | field::TID | field::TIME | field::AUX, 0, 0);
            // Behind the entry stands which guest's it is (none).
            pipe.record(kind::ID_INDEX, 0, &words(&[1, ID, 3, cpu, tid, 0, 0]));
            pipe.maps((7, 7, 5, 0), USER, 4, 0x1000, "/work");
            pipe.enters((7, 7, 10, 3));
            pipe.enters((7, 9, 150, 3));
            let sample = |tid: u32, tsc: u64, packets: &[u8]| {
                let size = words(&[packets.len() as u64]);
                [&words(&[ID])[..], &halves(&[7, tid]), &words(&[tsc]), &size, packets].concat()
            };
            pipe.record(kind::SAMPLE, 0, &sample(7, 110, &ran(100)));
            pipe.record(kind::SAMPLE, 0, &sample(9, 210, &[ran(100), ran(200)].concat()));
            pipe.open(&folder, Options::default())
        };
        let core = opened(3, 7);
        assert_eq!(core.streams.iter().map(|stream| stream.of).collect::<Vec<_>>(), [Of::Core(3)]);
        assert_eq!(runs(&core), [(7, vec![2]), (9, vec![2])]);
        let thread = opened(u64::MAX, 7);
        assert_eq!(thread.streams.iter().map(|stream| stream.of).collect::<Vec<_>>(), [Of::Thread { pid: 7, tid: 7 }]);
        assert_eq!(runs(&thread), [(7, vec![2, 2])]);
    }
}
