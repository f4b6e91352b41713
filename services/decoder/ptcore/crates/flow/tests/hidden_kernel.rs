//! Real programs as they would have been recorded with a kernel of which no code is known.

use crate::flow::{full, psb_plus, stream};
use crate::mutations::Random;
use crate::support::kernel::{ip, with_kernel, KERNEL};
use crate::support::{self, Recorder, Runs, Sections, Told};
use pt_flow::{CodeMemory, CodeSlice, Config, Flow, Loss, Reason};
use pt_packet::Packet;

/// A program that two threads run.
struct TwoThreads(Sections);

impl CodeMemory for TwoThreads {
    fn read(&self, epoch: u32, address: u64) -> Option<CodeSlice<'_>> {
        self.0.read(epoch, address)
    }

    fn thread(&self, epoch: u32) -> u64 {
        epoch.into()
    }
}

#[test]
fn where_another_thread_comes_to_run_in_the_kernel_the_loss_is_divided() {
    // 1000: syscall; 1002: je 1004; 1004: jmp rax
    let memory = TwoThreads(Sections([(0x1000, vec![0x0f, 0x05, 0x74, 0, 0xff, 0xe0])].into()));
    let before = [psb_plus(Some(0x1000)), vec![Packet::Tip(ip(KERNEL))]].concat();
    // Of these branches the last is the program's.
    let branches = Packet::Tnt { bits: 0b101, count: 3 };
    let behind = [branches, Packet::Tip(ip(0x1002)), Packet::Tip(ip(0x1000)), Packet::Tip(ip(KERNEL))];
    let from = stream(&before).len();
    let mut told = Recorder::default();
    let packets = [&before[..], &behind, &[Packet::Pad; 16]].concat();
    Flow::new(&memory).decode(&stream(&packets), &Config::default(), &[(from, 1)], &mut told);
    let words = told.told.iter().map(|told| match told {
        Told::Loss(Loss { reason, epoch, .. }) => format!("{} of {epoch}", reason.name()),
        Told::Block { last, .. } => format!("ran {last:x}"),
        Told::Enabled(ip) => format!("enabled {ip:x}"),
        Told::Disabled(_, at, _) => format!("disabled {at:x}"),
        other => format!("{other:x?}"),
    });
    let words: Vec<_> = words.collect();
    let program = ["enabled 1000", "ran 1000", "disabled 1000", "no-kernel-code of 0"];
    let other = ["no-kernel-code of 1", "enabled 1002", "ran 1002", "ran 1004", "ran 1000", "disabled 1000"];
    assert_eq!(words, [&program[..], &other, &["no-kernel-code of 1"]].concat());
}

#[test]
fn calls_of_a_program_are_returned_from_behind_what_is_not_known_of_the_kernel() {
    // 1000: call 1010; 1005: jmp rax; 1010: syscall; 1012: ret
    let program = [(0x1000, vec![0xe8, 0x0b, 0, 0, 0, 0xff, 0xe0]), (0x1010, vec![0x0f, 0x05, 0xc3])];
    // 0: call 8; 5: sysretq; 8: call rax; a: ret
    let kernel = [(KERNEL, vec![0xe8, 3, 0, 0, 0, 0x48, 0x0f, 0x07, 0xff, 0xd0, 0xc3])];
    let (leave, work) = (KERNEL + 5, KERNEL + 8);
    let memory = Sections(program.into_iter().chain(kernel).collect());
    let unknown = KERNEL + 0x1000;
    let call = [Packet::Tip(ip(KERNEL)), Packet::Tip(ip(unknown)), Packet::Tip(ip(unknown + 0x40))];
    let back_in_kernel = [Packet::Tip(ip(KERNEL + 10)), Packet::Tip(ip(KERNEL + 5))];
    let returned = [Packet::Tip(ip(0x1012)), Packet::Tnt { bits: 1, count: 1 }, Packet::Tip(ip(0x1000))];
    let told_of = |packets: &[&[Packet]]| {
        let mut told = Recorder::default();
        let packets = [&psb_plus(Some(0x1000))[..], &packets.concat(), &returned].concat();
        Flow::new(&memory).decode(&stream(&packets), &Config::default(), &[], &mut told);
        let ran = told.told.iter().filter_map(|told| match told {
            Told::Block { last, .. } if *last < KERNEL => Some(*last),
            _ => None,
        });
        ran.collect::<Vec<_>>()
    };
    for behind in [&[][..], &back_in_kernel] {
        assert_eq!(told_of(&[&call, behind]), [0x1000, 0x1010, 0x1012, 0x1005, 0x1000]);
        // The program came elsewhere in between.
        let elsewhere = [Packet::Tip(ip(0x5000)), Packet::Tip(ip(unknown))];
        assert_eq!(told_of(&[&call, &elsewhere, behind]), [0x1000, 0x1010, 0x1000]);
        // It was in the kernel before, and how it came there again was not traced.
        let before = [Packet::Tip(ip(leave)), returned[0], returned[1], Packet::TipPgd(ip(0x5000))];
        let again = [Packet::TipPge(ip(work)), call[1], call[2]];
        assert_eq!(told_of(&[&before, &again, behind]), [0x1000, 0x1010, 0x1012, 0x1005, 0x1000]);
    }
}

#[test]
fn an_address_that_no_kernel_has_is_damage() {
    let memory = Sections([(0x1000, vec![0x0f, 0x05])].into());
    for (target, reason) in [(KERNEL, Reason::NoKernelCode), (KERNEL ^ 1 << 60, Reason::NoCode)] {
        let packets = [psb_plus(Some(0x1000)), vec![Packet::Tip(full(target))]].concat();
        let mut told = Runs::default();
        Flow::new(&memory).decode(&stream(&packets), &Config::default(), &[], &mut told);
        assert_eq!(told.losses.iter().map(|loss| loss.reason).collect::<Vec<_>>(), [reason]);
    }
}

#[test]
fn what_programs_ran_is_told_behind_most_system_calls() {
    let (mut passed, mut all, mut random) = (0, 0, Random(77));
    for name in ["ovf-01-ben", "cve-2004-0597-poc", "cve-2005-0105-poc", "hello", "uaf-04-ben"] {
        let Some(griffin) = support::griffin(name) else { return };
        for stream in griffin.streams.values() {
            let (with_kernel, times) = with_kernel(stream, |most| random.below(most));
            let [mut ran, mut told] = [Runs::default(), Runs::default()];
            let mut flow = Flow::new(&griffin.memory);
            flow.decode(stream, &Config::default(), &[], &mut ran);
            flow.decode(&with_kernel, &Config::default(), &[], &mut told);
            let ran = ran.runs.concat();
            let instructions = told.are_in(&ran);
            assert!(instructions * 10 > ran.len() * 9, "{name}: {instructions} of {}", ran.len());
            passed += told.losses.iter().filter(|loss| loss.reason == Reason::NoKernelCode).count();
            all += times;
        }
    }
    assert!(passed * 8 > all * 5, "{passed} of {all}");
}
