//! Records of switches that cannot be, and that cannot all be true.

use crate::perf::recording::{program, runs, Folder, Pipe, NOP_RET, USER};
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
