//! Records of switches that cannot be, and that cannot all be true.

use crate::perf::recording::{program, runs, words, Folder, Id, Pipe, NOP_RET, TWO_NOPS_RET, USER};
use crate::{Capture, Options};

/// A thread of process 7 runs from 10 on.
fn recorded(name: &str, other: impl FnOnce(&mut Pipe)) -> Capture {
    let folder = Folder::new(name);
    program(&folder, "work", &NOP_RET);
    let mut pipe = Pipe::new();
    pipe.maps((7, 70, 5, 0), USER, 4, 0x1000, "/work");
    pipe.enters((7, 70, 10, 0));
    other(&mut pipe);
    pipe.ran(0, &[(100, USER), (200, USER)]);
    pipe.open(&folder, Options::default())
}

#[test]
fn a_record_of_a_thread_that_no_system_has_is_told_and_left_out() {
    let capture = recorded("odd-thread", |pipe| {
        pipe.enters((7, 1 << 31, 150, 0));
        pipe.leaves((1 << 31 | 7, 70, 160, 0));
        pipe.enters((7, 70, 170, 1 << 31));
        // COMM: its name.
        pipe.event(3, 0, &[7u32.to_le_bytes(), (1u32 << 31).to_le_bytes(), *b"work", [0; 4]].concat(), (7, 70, 180, 0));
    });
    let first = "the first: core 0, process 7, thread 2147483648";
    assert_eq!(capture.warnings, [format!("4 records name what no system has, and are left out; {first}")]);
    assert_eq!(runs(&capture), [(70, vec![2, 2])]);
}

#[test]
fn who_has_ended_has_no_number_and_is_no_odd_record() {
    let capture = recorded("ended-thread", |pipe| pipe.leaves((u32::MAX, u32::MAX, 300, 0)));
    assert_eq!((capture.warnings.len(), runs(&capture)), (0, vec![(70, vec![2, 2])]));
}

#[test]
fn records_that_contradict_each_other_are_told_and_followed() {
    let capture = recorded("contradicting", |pipe| pipe.enters((7, 71, 150, 0)));
    let what = "the first on core 0 at TSC 150: thread 71 comes, and thread 70 has not left";
    let doubt = "what ran there may be told of another thread";
    assert_eq!(capture.warnings[0], format!("1 records of switches contradict others, {what}; {doubt}"));
    assert_eq!(runs(&capture), [(70, vec![2]), (71, vec![2])]);
}

/// Cores of which no record says who came or left: packets of 100 and 200, and AUX records of them.
fn handed_out(name: &str, by: &[Id]) -> Capture {
    let folder = Folder::new(name);
    program(&folder, "work", &NOP_RET);
    program(&folder, "other", &TWO_NOPS_RET);
    let mut pipe = Pipe::new();
    pipe.maps((7, 70, 5, 1), USER, 4, 0x1000, "/work");
    pipe.maps((8, 80, 5, 1), USER, 4, 0x1000, "/other");
    for (number, &id) in by.iter().enumerate() {
        pipe.event(11, 0, &words(&[number as u64 * 24, 24, 0]), id);
    }
    pipe.ran(0, &[(100, USER), (200, USER)]);
    pipe.open(&folder, Options::default())
}

#[test]
fn who_kept_a_core_is_who_ran_as_its_packets_were_handed_out() {
    // The idle thread and who has ended count for nothing.
    for by in
        [&[(7, 70, 150, 0), (7, 70, 250, 0)][..], &[(7, 70, 250, 0), (0, 0, 260, 0), (u32::MAX, u32::MAX, 270, 0)]]
    {
        let capture = handed_out("kept", by);
        assert_eq!((runs(&capture), capture.warnings.len()), (vec![(70, vec![2, 2])], 0), "{:?}", capture.warnings);
    }
    let nobody = handed_out("idle", &[(0, 0, 250, 0)]);
    assert_eq!((runs(&nobody), nobody.warnings.len()), (vec![(0, vec![0])], 0));
}

#[test]
fn several_threads_that_ran_as_packets_were_handed_out_are_a_guess() {
    let capture = handed_out("guessed", &[(7, 70, 150, 0), (8, 80, 250, 0)]);
    assert_eq!(runs(&capture), [(70, vec![2]), (80, vec![3])]);
    let warning = &capture.warnings[0];
    assert!(
        warning.starts_with("core 0: no record of a switch says who ran there: packets are taken for"),
        "{warning}"
    );
}

#[test]
fn a_core_of_which_nothing_says_who_ran_is_told() {
    let capture = handed_out("untold", &[(7, 70, 150, 1)]);
    assert_eq!(runs(&capture), [(0, vec![0])]);
    let [warning] = &capture.warnings[..] else { panic!("{:?}", capture.warnings) };
    let begin = "core 0: no record says who ran there: nobody knows whose packets these are; ";
    assert!(warning.starts_with(begin) && warning.ends_with("without --no-switch-events"), "{warning}");
}
