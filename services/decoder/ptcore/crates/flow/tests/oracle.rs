//! The reference streams through libipt: the same packets, instructions, blocks, events and times.
//!
//! Without a C compiler or libipt's headers the tests say so and pass.

mod differential;
mod support;

use differential::{compare, oracle, Equal, Layer};
use pt_flow::{Config, Cpu, Errata};
use std::path::Path;
use std::process::Command;
use support::Sections;

const SKYLAKE: Cpu = Cpu { family: 6, model: 94, stepping: 3 };

/// A stream with its code, as both decoders want it.
struct Input<'a> {
    name: &'a str,
    stream: &'a [u8],
    cpu: Cpu,
    config: Config,
    memory: &'a Sections,
}

impl Input<'_> {
    fn compare(&self, layer: Layer) -> Result<Equal, String> {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("oracle").join(self.name).join(layer.name());
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("stream.pt");
        std::fs::write(&file, self.stream).unwrap();
        let mut command = Command::new(oracle().unwrap().join("pt_oracle"));
        let Cpu { family, model, stepping } = self.cpu;
        let (ebx, eax) = self.config.tsc_ctc_ratio;
        command.arg("--cpu").arg(format!("{family}/{model}/{stepping}"));
        command.arg("--clocks").arg(format!("{}/{ebx}/{eax}/{}", self.config.mtc_freq, self.config.nominal_ratio));
        command.arg(layer.name()).arg(&file);
        for (address, bytes) in &self.memory.0 {
            let file = folder.join(format!("{address:x}.bin"));
            std::fs::write(&file, bytes).unwrap();
            command.arg(format!("{}:0:{}:{address:#x}", file.display(), bytes.len()));
        }
        let config = Config { errata: Errata::of(self.cpu).unwrap(), ..self.config };
        let compared = compare(layer, command, self.stream, &config, self.memory, &[]);
        std::fs::remove_dir_all(&folder).unwrap();
        compared
    }

    fn equal(&self, layer: Layer) -> Equal {
        let equal = self.compare(layer).unwrap_or_else(|why| panic!("{} {}: {why}", self.name, layer.name()));
        println!("{} {}: {equal}", self.name, layer.name());
        equal
    }
}

fn griffin(name: &str) {
    let (Some(_), Some(griffin)) = (oracle(), support::griffin(name)) else { return };
    let stream = griffin.streams.values().next().unwrap();
    let input = Input { name, stream, cpu: SKYLAKE, config: Config::default(), memory: &griffin.memory };
    for layer in Layer::ALL {
        println!("{name} {} {:?}", layer.name(), input.compare(layer));
    }
}

/// A stream in a file of its own, with the ELF files that ran and where they were.
fn file(name: &str, stream: &str, cpu: Cpu, config: Config, code: &[(&str, u64)]) {
    let (Some(_), Some(data)) = (oracle(), support::reference_data()) else { return };
    let folder = data.join("pt");
    let mut memory = Sections::default();
    for (file, bias) in code {
        memory.load(&std::fs::read(folder.join(file)).unwrap(), *bias);
    }
    let stream = std::fs::read(folder.join(stream)).unwrap();
    let input = Input { name, stream: &stream, cpu, config, memory: &memory };
    for layer in Layer::ALL {
        println!("{name} {} {:x?}", layer.name(), input.compare(layer));
    }
}

#[test]
fn lldb_one_thread() {
    let code = [("lldb/intelpt-trace/a.out", 0)];
    let cpu = Cpu { family: 6, model: 79, stepping: 1 };
    file("lldb-one", "lldb/intelpt-trace/3842849.trace", cpu, Config::default(), &code);
}

#[test]
fn lldb_several_files() {
    let folder = "lldb/intelpt-trace-multi-file";
    let code = [("a.out", 0), ("libfoo.so", 140737349783552), ("libbar.so", 140737347678208)];
    let code = code.map(|(name, bias)| (format!("{folder}/{name}"), bias));
    let code: Vec<_> = code.iter().map(|(name, bias)| (name.as_str(), *bias)).collect();
    let cpu = Cpu { family: 6, model: 79, stepping: 1 };
    file("lldb-several", &format!("{folder}/multi-file.trace"), cpu, Config::default(), &code);
}

#[test]
fn lldb_two_cores() {
    let folder = "lldb/intelpt-multi-core-trace";
    let module = format!("{folder}/modules/m.out");
    let cpu = Cpu { family: 6, model: 85, stepping: 4 };
    for core in [45, 51] {
        let stream = format!("{folder}/cores/{core}.intelpt_trace");
        file(&format!("lldb-core-{core}"), &stream, cpu, Config::default(), &[(&module, 0)]);
    }
}

#[test]
fn dynamorio_hello() {
    file("dynamorio", "dynamorio/pt.bin", SKYLAKE, Config::default(), &[("dynamorio/hello", 0)]);
}

#[test]
fn last() {
    griffin("last");
}

#[test]
fn ovf_01_ben() {
    griffin("ovf-01-ben");
}

#[test]
fn cve_2004_0597_poc() {
    griffin("cve-2004-0597-poc");
}

#[test]
fn cve_2005_0105_poc() {
    griffin("cve-2005-0105-poc");
}

#[test]
fn hello() {
    griffin("hello");
}

#[test]
fn uaf_04_ben() {
    griffin("uaf-04-ben");
}
