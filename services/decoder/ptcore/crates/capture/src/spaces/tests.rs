//! What address spaces of processes are made of.

use super::*;
use pt_flow::CodeMemory;

fn code(address: u64, byte: u8) -> Mapping {
    let content = Content::Code(vec![byte; 16].into());
    Mapping { address, size: 16, name: "x".to_owned(), content }
}

fn byte(built: &Built, epoch: u32, address: u64) -> Option<u8> {
    built.image.read(epoch, address).map(|slice| slice.bytes[0])
}

#[test]
fn only_what_takes_the_place_of_something_begins_an_epoch() {
    let mut spaces = Spaces::default();
    spaces.map(1, 0, code(0x1000, 1));
    spaces.map(1, 50, code(0x2000, 2));
    spaces.map(1, 70, code(0x1008, 3));
    let built = spaces.build(1);
    assert_eq!(built.epochs, [(70, 1)]);
    assert_eq!(byte(&built, 0, 0x2000), Some(2));
    assert_eq!((byte(&built, 0, 0x1008), byte(&built, 1, 0x1008)), (Some(1), Some(3)));
}

#[test]
fn what_takes_the_place_of_code_that_nobody_could_read_begins_an_epoch() {
    let without_code = |name: &str, content| Mapping { address: 0x1000, size: 16, name: name.to_owned(), content };
    let unread = |name| without_code(name, Content::Unread { reason: "the file is not there".to_owned() });
    let gone = without_code("gone", Content::Missing { reason: "it was removed before".to_owned() });
    let mut spaces = Spaces::default();
    for pid in 1..4 {
        spaces.map(pid, 10, unread("gone"));
        spaces.map(pid, 20, unread("again"));
    }
    spaces.map(1, 70, code(0x1008, 3));
    // What came could only run where the other one was removed.
    spaces.map(2, 50, gone);
    spaces.map(2, 70, code(0x1008, 3));
    spaces.exec(3, 50);
    spaces.map(3, 70, code(0x1008, 3));
    for (pid, epochs) in [(1, [(70, 1)]), (2, [(50, 1)]), (3, [(50, 1)])] {
        let built = spaces.build(pid);
        assert_eq!(built.epochs, epochs, "{pid}");
        assert_eq!((byte(&built, 0, 0x1008), byte(&built, 1, 0x1008)), (None, Some(3)), "{pid}");
    }
    spaces.map(4, 10, unread("memory"));
    spaces.map(4, 70, Mapping { name: JIT.to_owned(), ..code(0x1008, 3) });
    assert_eq!(spaces.build(4).epochs, []);
    let built = spaces.build(3);
    assert_eq!(built.image.why_no_code(0, 0x1000), "again: the file is not there");
    assert_eq!(built.image.why_no_code(1, 0x1000), "nothing was mapped there");
}

#[test]
fn a_child_begins_with_what_its_parent_had() {
    let mut spaces = Spaces::default();
    spaces.map(1, 0, code(0x1000, 1));
    spaces.fork(1, 2, 100);
    spaces.map(1, 150, code(0x3000, 9));
    spaces.exec(2, 200);
    spaces.map(2, 210, code(0x1000, 7));
    let built = spaces.build(2);
    assert_eq!(built.epochs, [(200, 1)]);
    assert_eq!((byte(&built, 0, 0x1000), byte(&built, 1, 0x1000)), (Some(1), Some(7)));
    assert_eq!(byte(&built, 0, 0x3000), None);
    assert_eq!(byte(&built, 0, 0x1008), Some(1));
    assert_eq!(byte(&spaces.build(3), 0, 0x1000), None);
}

#[test]
fn processes_that_fork_each_other_are_no_endless_line() {
    let mut spaces = Spaces::default();
    spaces.fork(1, 2, 10);
    spaces.fork(2, 1, 20);
    assert!(spaces.build(1).epochs.is_empty());
}

#[test]
fn a_process_may_have_the_pid_of_an_ancestor_that_has_ended() {
    let mut spaces = Spaces::default();
    spaces.map(1, 0, code(0x1000, 1));
    spaces.fork(1, 2, 10);
    spaces.fork(2, 1, 20);
    let built = spaces.build(1);
    assert_eq!((&built.epochs[..], built.refused.len()), (&[(20, 1)][..], 0));
    assert_eq!([0, 1].map(|epoch| byte(&built, epoch, 0x1000)), [Some(1); 2]);
}

#[test]
fn pids_that_are_taken_in_turns_are_a_line_of_forks_each() {
    let mut spaces = Spaces::default();
    spaces.map(1, 0, code(0x1000, 1));
    for tsc in 1..=50 {
        let (parent, child) = if tsc % 2 == 1 { (1, 2) } else { (2, 1) };
        spaces.fork(parent, child, tsc);
    }
    let built = [1, 2].map(|pid| spaces.build(pid));
    assert!(built.iter().all(|built| built.refused.is_empty() && built.changes < 50 * 50));
    assert!(built.iter().all(|built| byte(built, built.epochs[built.epochs.len() - 1].1, 0x1000) == Some(1)));
}

#[test]
fn a_fork_that_is_read_before_what_had_the_pid_earlier_is_later_all_the_same() {
    let told = |fork_first: bool| {
        let mut spaces = Spaces::default();
        spaces.map(1, 0, code(0x1000, 1));
        if fork_first {
            spaces.fork(1, 2, 100);
        }
        spaces.exec(2, 40);
        spaces.map(2, 50, code(0x1000, 5));
        spaces.map(2, 60, code(0x5000, 6));
        if !fork_first {
            spaces.fork(1, 2, 100);
        }
        let built = spaces.build(2);
        let (_, last) = built.epochs[built.epochs.len() - 1];
        [0x1000, 0x5000].map(|address| byte(&built, last, address))
    };
    assert_eq!([true, false].map(told), [[Some(1), None]; 2]);
}

#[test]
fn forks_that_are_too_many_are_told() {
    let mut spaces = Spaces::default();
    spaces.map(1, 1, code(0x1000, 1));
    for child in 2..100 {
        spaces.fork(child - 1, child, u64::from(child));
    }
    let told = [64, 65].map(|pid| (spaces.build(pid).refused.len(), byte(&spaces.build(pid), 0, 0x1000)));
    assert_eq!(told, [(0, Some(1)), (1, None)]);
}

#[test]
fn what_cannot_be_mapped_is_told() {
    let mut spaces = Spaces::default();
    spaces.map(1, 0, Mapping { size: 0, ..code(0x1000, 1) });
    spaces.map(1, 0, Mapping { address: u64::MAX - 3, ..code(0, 1) });
    assert_eq!(spaces.build(1).refused.len(), 2);
}
