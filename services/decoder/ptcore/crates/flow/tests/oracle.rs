//! The same streams and code through libipt: the same instructions, one by one.
//!
//! Builds `tests/oracle` of the repository; without a C compiler or libipt's headers the tests say so and pass.

mod support;

use pt_flow::{Block, Config, Cpu, DisableKind, Errata, Execution, Flow, Loss, Notice, NoticeKind, Sink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use support::{Addresses, Griffin};

fn oracle() -> Option<&'static Path> {
    static ORACLE: OnceLock<Option<PathBuf>> = OnceLock::new();
    ORACLE
        .get_or_init(|| {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../../../tests/oracle");
            let made = Command::new("make").arg("-C").arg(&folder).output().ok()?;
            if !made.status.success() {
                eprintln!("skipped: {}", String::from_utf8_lossy(&made.stderr));
                return None;
            }
            Some(folder.join("pt_oracle"))
        })
        .as_deref()
}

/// The lines libipt's decoder prints; `options` as in `pt_oracle.c`.
fn libipt(name: &str, oracle: &Path, options: &[&str], stream: &[u8], griffin: &Griffin) -> Vec<String> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name).join(options.concat());
    std::fs::create_dir_all(&folder).unwrap();
    let mut command = Command::new(oracle);
    let file = folder.join("stream.pt");
    std::fs::write(&file, stream).unwrap();
    command.args(options).arg(&file);
    for (address, bytes) in &griffin.memory.0 {
        let file = folder.join(format!("{address:x}.bin"));
        std::fs::write(&file, bytes).unwrap();
        command.arg(format!("{}:0:{}:{address:#x}", file.display(), bytes.len()));
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::remove_dir_all(&folder).unwrap();
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

fn hexadecimal(text: &str) -> u64 {
    u64::from_str_radix(text, 16).unwrap_or_else(|_| panic!("libipt says {text:?}"))
}

fn compare(name: &str) {
    let (Some(oracle), Some(griffin)) = (oracle(), support::griffin(name)) else { return };
    let stream = griffin.streams.values().next().unwrap();
    let mut sink = Addresses::default();
    Flow::new(&griffin.memory).decode(stream, &Config::default(), &[], &mut sink);
    assert_eq!(sink.losses, []);
    let mut rest = &sink.addresses[..];
    for line in libipt(name, oracle, &["--blocks"], stream, &griffin) {
        let [first, last, number] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("libipt says {line:?}") };
        let (run, behind) = rest.split_at(number.parse().unwrap());
        assert_eq!((run[0], run[run.len() - 1]), (hexadecimal(first), hexadecimal(last)), "{name}: {line}");
        rest = behind;
    }
    assert_eq!(rest, [0; 0], "{name}: more than libipt has");
    // The instruction decoder is stricter about TIP.PGD without address: only what stands before its first error.
    let lines = libipt(name, oracle, &[], stream, &griffin);
    let addresses: Vec<_> =
        lines.iter().take_while(|line| !line.starts_with("error")).map(|l| hexadecimal(l)).collect();
    assert!(sink.addresses.starts_with(&addresses), "{name}: instructions differ");
    println!("{name}: all {} by blocks, the first {} one by one", sink.addresses.len(), addresses.len());
}

/// Instructions and events in libipt's words.
#[derive(Default)]
struct Listed {
    lines: Vec<String>,
    standing: bool,
}

impl Sink for Listed {
    fn block(&mut self, block: &Block<'_>, _: u64) {
        self.lines.extend(block.addresses().map(|address| format!("{address:x}")));
    }

    fn enabled(&mut self, ip: u64, resumed: bool, _: u64) {
        if !std::mem::take(&mut self.standing) {
            self.lines.push(format!("[{} {ip:x}]", if resumed { "resumed" } else { "enabled" }));
        }
    }

    fn disabled(&mut self, kind: DisableKind, at: u64, target: Option<u64>, _: u64) {
        let target = target.map_or(String::new(), |ip| format!(" {ip:x}"));
        self.lines.push(match kind {
            DisableKind::Synchronous => format!("[disabled{target}]"),
            DisableKind::Asynchronous => format!("[stopped {at:x}{target}]"),
        });
    }

    fn interrupt(&mut self, from: u64, to: u64, _: u64) {
        self.lines.push(format!("[interrupt {from:x} {to:x}]"));
    }

    fn loss(&mut self, _: &Loss) {
        self.lines.push("error".to_owned());
    }

    fn overflow(&mut self, _: usize, _: Option<u64>, _: u64) {
        self.lines.push("[overflow]".to_owned());
    }

    fn notice(&mut self, notice: &Notice, _: u64) {
        self.standing |= notice.kind == NoticeKind::Standing;
        if notice.status {
            return;
        }
        self.lines.push(match notice.kind {
            NoticeKind::Paging { cr3, .. } => format!("[paging {cr3:x}]"),
            NoticeKind::ExecutionMode(mode) => {
                let number = match mode {
                    Execution::Bits16 => 1,
                    Execution::Bits32 => 2,
                    Execution::Bits64 => 3,
                };
                format!("[mode {number}]")
            }
            NoticeKind::Transaction { active, aborted } => {
                format!("[transaction {} {}]", u8::from(active), u8::from(aborted))
            }
            NoticeKind::TraceStop => "[trace stop]".to_owned(),
            NoticeKind::PtWrite { payload, .. } => format!("[ptwrite {payload:x}]"),
            _ => return,
        });
    }
}

/// The events of the instruction decoder among its instructions, up to its first error.
#[test]
fn events_stand_where_libipt_has_them() {
    for name in ["last", "ovf-01-ben", "cve-2004-0597-poc", "cve-2005-0105-poc", "hello", "uaf-04-ben"] {
        let (Some(oracle), Some(griffin)) = (oracle(), support::griffin(name)) else { return };
        let stream = griffin.streams.values().next().unwrap();
        let mut sink = Listed::default();
        let errata = Errata::of(Cpu { family: 6, model: 94, stepping: 3 }).unwrap();
        Flow::new(&griffin.memory).decode(stream, &Config { errata, ..Config::default() }, &[], &mut sink);
        let lines = libipt(&format!("{name}-events"), oracle, &["--events"], stream, &griffin);
        let until = lines.iter().position(|line| line.starts_with("error")).unwrap_or(lines.len());
        for (number, (found, listed)) in sink.lines.iter().zip(&lines[..until]).enumerate() {
            assert_eq!(found, listed, "{name}: line {number}");
        }
        assert!(sink.lines.len() >= until, "{name}: {} of {until} lines", sink.lines.len());
        let events = lines[..until].iter().filter(|line| line.starts_with('[')).count();
        println!("{name}: {until} lines agree, {events} of them events");
    }
}

#[test]
fn last() {
    compare("last");
}

#[test]
fn ovf_01_ben() {
    compare("ovf-01-ben");
}

#[test]
fn cve_2004_0597_poc() {
    compare("cve-2004-0597-poc");
}

#[test]
fn cve_2005_0105_poc() {
    compare("cve-2005-0105-poc");
}

#[test]
fn hello() {
    compare("hello");
}

#[test]
fn uaf_04_ben() {
    compare("uaf-04-ben");
}
