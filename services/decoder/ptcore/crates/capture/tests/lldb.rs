//! Trace bundles of LLDB against the figures that LLDB gives.

use crate::support::{reference_data, Told};
use pt_capture::{open, Capture, Of, Options, Switch, Threads};
use pt_flow::{Flow, Reason, Statistics};
use std::collections::BTreeMap;
use std::path::PathBuf;

fn bundle(name: &str) -> Option<PathBuf> {
    Some(reference_data()?.join("pt/lldb").join(name))
}

fn threads(capture: &Capture) -> (BTreeMap<u32, Told>, Vec<Statistics>) {
    let memory = capture.memory();
    let mut flow = Flow::new(&memory);
    let mut all = BTreeMap::new();
    let mut counts = Vec::new();
    for stream in &capture.streams {
        let mut sink = Threads::new(&capture.views, |_| Told::default());
        counts.push(flow.decode(&stream.data, &capture.config, &stream.epochs, &mut sink));
        all.extend(sink.finish().into_iter().map(|((_, tid), told)| (tid, told)));
    }
    (all, counts)
}

/// Stretches in which one thread ran on a core, as far as the records tell.
fn executions(switches: &[Switch]) -> usize {
    let mut count = 0;
    let mut last: Option<Switch> = None;
    for &switch in switches {
        count += match (last, switch.enters) {
            (None, true) => 0,
            (None, false) => 1,
            (Some(last), enters) if last.enters == enters => 1,
            (Some(last), false) if (last.pid, last.tid) != (switch.pid, switch.tid) => 2,
            (Some(_), false) => 1,
            (Some(_), true) => 0,
        };
        last = Some(switch);
    }
    count + usize::from(last.is_some_and(|last| last.enters))
}

#[test]
fn a_session_of_two_cores() {
    let Some(folder) = bundle("intelpt-multi-core-trace") else { return };
    for name in ["", "trace.json", "trace_missing_threads.json", "trace_with_string_numbers.json"] {
        let capture = open(&folder.join(name), &Options::default()).unwrap();
        let cores: Vec<_> = capture.streams.iter().map(|stream| stream.of).collect();
        assert_eq!(cores, [Of::Core(45), Of::Core(51)]);
        assert_eq!(capture.cpu, Some((6, 85, 4)));
        let found: usize = capture.streams.iter().map(|stream| executions(&stream.switches)).sum();
        assert_eq!(found, 153);
        let (threads, counts) = threads(&capture);
        assert_eq!(counts.iter().map(|counts| counts.psb).sum::<u64>(), 5);
        let of = |tid| threads[&tid].instructions.len();
        assert!((19_400..19_600).contains(&of(3497496)), "{}", of(3497496));
        assert!((61_700..61_900).contains(&of(3497497)), "{}", of(3497497));
    }
}

#[test]
fn code_that_nobody_has_need_not_cost_what_comes_behind_it() {
    let Some(folder) = bundle("intelpt-multi-core-trace") else { return };
    let mut capture = open(&folder, &Options::default()).unwrap();
    let (careful, _) = threads(&capture);
    capture.config.resume_at_address = true;
    let (resumed, _) = threads(&capture);
    let (careful, resumed) = (&careful[&3497496].instructions, &resumed[&3497496].instructions);
    assert!(resumed.len() > 2 * careful.len(), "{} {}", resumed.len(), careful.len());
    assert!(resumed.ends_with(careful), "what is behind the PSB is the same");
}

#[test]
fn one_thread() {
    let Some(folder) = bundle("intelpt-trace") else { return };
    let capture = open(&folder, &Options::default()).unwrap();
    assert_eq!((capture.warnings.len(), capture.cpu), (0, Some((6, 79, 1))));
    assert_eq!(capture.streams[0].of, Of::Thread { pid: 1234, tid: 3842849 });
    let (threads, _) = threads(&capture);
    assert_eq!(threads[&3842849].instructions.len(), 21);
}

#[test]
fn one_thread_in_several_files() {
    let Some(folder) = bundle("intelpt-trace-multi-file") else { return };
    let capture = open(&folder.join("multi-file-no-ld.json"), &Options::default()).unwrap();
    let (threads, _) = threads(&capture);
    let told = &threads[&815455];
    assert_eq!(told.instructions.len(), 45);
    let reasons: Vec<_> = told.losses.iter().map(|loss| loss.reason).collect();
    assert_eq!(reasons, [Reason::BeforeFirstPsb, Reason::NoCode], "the dynamic loader is not in the bundle");
}

#[test]
fn two_threads_may_share_a_trace() {
    let Some(folder) = bundle("intelpt-trace") else { return };
    let capture = open(&folder.join("trace_2threads.json"), &Options::default()).unwrap();
    let names: Vec<_> = capture.streams.iter().map(|stream| stream.name.as_str()).collect();
    assert_eq!(names, ["thread 3842849", "thread 3842850"]);
}

#[test]
fn a_module_at_a_wrong_address_is_code_that_is_missing() {
    let Some(folder) = bundle("intelpt-trace") else { return };
    let capture = open(&folder.join("trace_bad_image.json"), &Options::default()).unwrap();
    let (threads, _) = threads(&capture);
    let told = &threads[&3842849];
    assert!(told.instructions.is_empty());
    let why = capture.memory().why_no_code(told.losses[1].epoch, told.losses[1].address);
    assert_eq!(why, "nothing was mapped there");
}

#[test]
fn a_bundle_of_the_kernel() {
    let Some(folder) = bundle("intelpt-kernel-trace") else { return };
    let capture = open(&folder.join("trace_with_loadAddress.json"), &Options::default()).unwrap();
    assert!(capture.kernel.is_some() && capture.streams.len() == 2);
    let memory = open(&folder, &Options::default()).unwrap();
    let memory = memory.memory();
    let code = pt_flow::CodeMemory::read(&memory, 0, 0xffff_ffff_8100_0a80).unwrap();
    let file = std::fs::read(folder.join("../intelpt-multi-core-trace/modules/m.out")).unwrap();
    assert_eq!(code.bytes[..64], file[0xa80..][..64], "the first loaded part is all of the file's first bytes");
}

#[test]
fn a_bad_description_is_refused_with_the_place_and_the_value() {
    let Some(folder) = bundle("intelpt-trace") else { return };
    for (name, wanted) in [
        ("trace_bad.json", "processes[0]: an object is wanted, not 123"),
        ("trace_bad2.json", "cpuInfo.family: a whole number is wanted, not \"123\""),
        ("trace_bad3.json", "processes[1]: it has no `pid`"),
        ("trace_bad4.json", "cpuInfo: it has no `family`"),
        ("trace_bad5.json", "processes[1]: it has no `pid`"),
        ("trace_wrong_cpu.json", "cpuInfo.family: a number below 65536 is wanted, not 2123123"),
        (
            "../intelpt-kernel-trace/trace_kernel_wo_cpus.json",
            "the whole: a kernel's trace is per core: it has no `cpus`",
        ),
    ] {
        let Err(error) = open(&folder.join(name), &Options::default()) else { panic!("{name} must not be taken") };
        assert!(error.to_string().ends_with(wanted), "{error}");
    }
}
