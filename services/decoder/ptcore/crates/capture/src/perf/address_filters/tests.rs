//! What is traced by which filters, and that the flow allows for it.

use super::*;
use crate::perf::recording::{halves, program, runs, text, words, Folder, Pipe, USER};
use crate::Options;
use pt_packet::{writer::write, Compression, Ip, Packet};

/// Address, size, offset and file of a mapping.
type Mapped<'t> = (u64, u64, u64, &'t str);

fn filter(text: &str, mapped: &[Mapped<'_>]) -> (Vec<(u64, u64)>, Vec<String>) {
    let mut filters = AddressFilters::of(text);
    for &(address, size, offset, file) in mapped {
        filters.map(address, size, offset, file);
    }
    let mut warnings = Vec::new();
    let filter = filters.finish(&mut warnings);
    (filter.ranges.into_iter().flatten().collect(), warnings)
}

fn ranges(text: &str, mapped: &[Mapped<'_>]) -> Vec<(u64, u64)> {
    let (ranges, warnings) = filter(text, mapped);
    assert_eq!(warnings, Vec::<String>::new());
    ranges
}

fn warning(text: &str, mapped: &[Mapped<'_>]) -> String {
    let (_, warnings) = filter(text, mapped);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    let may = ": where a direct branch left what was traced, code that did not run may be told (SKL014)";
    let what = warnings[0].strip_prefix("address filters: ").and_then(|warning| warning.strip_suffix(may));
    what.unwrap_or_else(|| panic!("{warnings:?}")).to_owned()
}

#[test]
fn a_stretch_of_a_file_is_where_any_process_had_it() {
    let text = "filter 0x1000/0x20@/work";
    assert_eq!(ranges(text, &[(USER, 0x1000, 0x1000, "/work")]), [(USER, USER + 0x1f)]);
    // Mapped in part only: its end, its begin.
    let (end, begin) = ((USER, 0x1000, 0x1010, "/work"), (2 * USER, 0x1018, 0, "/work"));
    assert_eq!(ranges(text, &[end, begin]), [(USER, USER + 0xf), (2 * USER + 0x1000, 2 * USER + 0x1017)]);
    // Other files and other parts of it have nothing to do with it.
    let others = [(3 * USER, 0x1000, 0x1000, "/other"), (4 * USER, 0x1000, 0, "/work"), (u64::MAX, 9, 0x1001, "/work")];
    assert_eq!(ranges(text, &[&[end][..], &others].concat())[0], (USER, USER + 0xf));
}

#[test]
fn what_stops_tracing_is_not_traced() {
    let mapped = [(USER, 0x1000, 0, "/work")];
    assert_eq!(
        ranges("filter 0x0/0x100@/work,stop 0x40/0x10@/work", &mapped),
        [(USER, USER + 0x3f), (USER + 0x50, USER + 0xff)]
    );
    // Without a filter all else is traced.
    assert_eq!(ranges("tracestop 0x40/0x10@/work", &mapped), [(0, USER + 0x3f), (USER + 0x50, u64::MAX - 1)]);
}

#[test]
fn addresses_of_the_kernel_are_taken_as_they_are() {
    let text = format!("filter 0xffffffff81000000/0x40, start {}/16", 0xffff_ffff_8200_0000u64);
    let [first, second] = [0xffff_ffff_8100_0000, 0xffff_ffff_8200_0000];
    assert_eq!(ranges(&text, &[]), [(first, first + 0x3f), (second, second + 0xf)]);
}

#[test]
fn the_nearest_of_too_many_ranges_are_taken_for_one() {
    let mapped: Vec<_> = [1, 20, 21, 30, 40].map(|at| (at * USER, 0x1000, 0, "/work")).into();
    let (ranges, warnings) = filter("filter 0x0/0x10@/work", &mapped);
    let wanted = [(1, 1), (20, 21), (30, 30), (40, 40)].map(|(first, last)| (first * USER, last * USER + 0xf));
    assert_eq!((ranges, warnings.len()), (wanted.to_vec(), 1));
    let what = "they come to 5 ranges of addresses, of which the nearest are taken for one";
    assert_eq!(warning("filter 0x0/0x10@/work", &mapped), what);
}

#[test]
fn filters_that_cannot_be_allowed_for_are_warned_of() {
    let unmapped = "0x1000 to 0x1020 of /work was never mapped in the recording";
    assert_eq!(warning("filter 0x1000/0x20@/work", &[(USER, 0x1000, 0, "/work")]), unmapped);
    for (text, reason) in [
        ("filter main@/work", "`main@/work` has no size"),
        ("start 0x1000@/work", "`0x1000@/work` has no size"),
        ("filter 0x1000/0x0@/work", "`0x1000/0x0` is no range of addresses"),
        ("filter 0x1000/-1@/work", "`0x1000/-1` is no range of addresses"),
        ("filter", "`filter` of nothing"),
        ("comm == work", "`comm` is no kind of filter"),
        (&"filter 1/1,".repeat(8), "there are more than the 7 that a processor may have"),
    ] {
        assert_eq!(warning(text, &[]), format!("they are not understood: {reason}"));
        assert_eq!(filter(text, &[]).0, []);
    }
    let cut = words(&[1, 8, 0, 1, 0, 1, 0x400, 0x800, 3, 0, 1, 0, 0, 0, 0, 0, 0, 24]);
    let mut warnings = Vec::new();
    AddressFilters::read(&cut).finish(&mut warnings);
    let begin = "address filters: they are not understood: 24 bytes are wanted, 0 are there: ";
    assert!(warnings[0].starts_with(begin), "{warnings:?}");
}

/// A Skylake client, where a direct branch out of the range may leave a TIP.PGD without its address (SKL014).
#[test]
fn a_direct_branch_out_of_what_is_filtered_ends_the_trace_without_an_address() {
    let folder = Folder::new("filtered");
    // nop; call out of the range; ret. Out of the range: nop; nop; nop; jne; nop; ret.
    let mut code = vec![0x90, 0xe8, 0x1a, 0, 0, 0, 0xc3];
    code.resize(0x20, 0xcc);
    code.extend([0x90, 0x90, 0x90, 0x75, 0x01, 0x90, 0xc3]);
    program(&folder, "work", &code);
    let filter = "filter 0x1000/0x20@/work";
    let mut info = vec![1, 8, 0, 1, 0, 1, 0x400, 0x800, 3, 0, 1, 0x200, 0x3c000, 2, 1, 2, 24, filter.len() as u64];
    info.extend(text(filter).chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())));
    // Whether it can trace events.
    info.push(0);
    let mut pipe = Pipe::with(&info);
    let cpu = text("GenuineIntel,6,142,9");
    pipe.record(80, 0, &[words(&[9]), halves(&[cpu.len() as u32]), cpu].concat());
    pipe.maps((7, 7, 5, 0), USER, 0x1000, 0x1000, "/work");
    pipe.enters((7, 7, 10, 0));
    let full = |payload| Ip { compression: Compression::Full, payload };
    let mut data = Vec::new();
    for packet in [
        Packet::Psb,
        Packet::Tsc(20),
        Packet::Psbend,
        Packet::TipPge(full(USER)),
        Packet::TipPgd(Ip::SUPPRESSED),
        Packet::TipPge(full(USER + 6)),
        Packet::TipPgd(full(0x77)),
    ] {
        write(&mut data, packet);
    }
    pipe.packets(0, 0, &data);
    let timing = pt_flow::Config { nominal_ratio: 24, ..Default::default() };
    for timing in [None, Some(timing)] {
        let capture = pipe.open(&folder, Options { timing, ..Options::default() });
        assert_eq!(capture.warnings, Vec::<String>::new());
        assert_eq!(runs(&capture), [(7, vec![2, 1])], "nop call, ret");
    }
}
