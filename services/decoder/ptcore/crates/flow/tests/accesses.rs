//! What instructions read and write, told by class and width.

use crate::support::Sections;
use pt_flow::{Access, Block, Config, DisableKind, Flow, InstructionClass, Loss, Sink};
use pt_packet::writer::write;
use pt_packet::{Compression, Execution, Ip, Packet};

/// Numbers and lengths of the blocks that ran.
#[derive(Default)]
struct Ran(Vec<(u32, u32)>);

impl Sink for Ran {
    fn block(&mut self, block: &Block<'_>, _tsc: u64) {
        self.0.push((block.id, block.instructions));
    }
    fn enabled(&mut self, _: u64, _: bool, _: u64) {}
    fn disabled(&mut self, _: DisableKind, _: u64, _: Option<u64>, _: u64) {}
    fn interrupt(&mut self, _: u64, _: u64, _: u64) {}
    fn loss(&mut self, _: &Loss) {}
    fn overflow(&mut self, _: usize, _: Option<u64>, _: u64) {}
}

const BASE: u64 = 0x1000;

/// The accesses of code that ends with a return, run once.
fn accesses(code: &[u8], mode: Execution) -> Vec<(&'static str, u16, u64, u64)> {
    let memory = Sections([(BASE, code.to_vec())].into());
    let mut data = Vec::new();
    let at = |payload| Ip { compression: Compression::SignExtend48, payload };
    for packet in [
        Packet::Psb,
        Packet::Psbend,
        Packet::ModeExec { mode, interrupt_flag: false },
        Packet::TipPge(at(BASE)),
        Packet::TipPgd(at(0x5000)),
    ] {
        write(&mut data, packet);
    }
    let (mut flow, mut ran) = (Flow::new(memory), Ran::default());
    flow.decode(&data, &Config::default(), &[], &mut ran);
    let &[(id, instructions)] = ran.0.as_slice() else { panic!("{:?}", ran.0) };
    let told = |access: &Access| (access.class.name(), access.width, access.reads, access.writes);
    flow.accesses(0, id, instructions).iter().map(told).collect()
}

/// Behind the code: a return.
fn of(code: &str) -> Vec<(&'static str, u16, u64, u64)> {
    let mut told = accesses(&bytes(&format!("{code}c3")), Execution::Bits64);
    // The return reads its address.
    let stack = told.iter_mut().find(|access| (access.0, access.1) == ("stack", 8)).unwrap();
    stack.2 -= 1;
    told.retain(|access| access.2 + access.3 != 0);
    told
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

#[test]
fn each_class_has_its_widths() {
    for (code, what, expected) in [
        ("90", "nop", vec![]),
        ("488d0411", "lea rax, [rcx+rdx]", vec![]),
        ("0f1f00", "nop dword [rax]", vec![]),
        // Lines of the cache are moved about, or watched: no data is read.
        ("0f1808", "prefetcht0 [rax]", vec![]),
        ("0f1800", "prefetchnta [rax]", vec![]),
        ("0f1820", "prefetchrst2 [rax]", vec![]),
        ("0f0d00", "prefetch [rax]", vec![]),
        ("0f0d08", "prefetchw [rax]", vec![]),
        ("0f0d10", "prefetchwt1 [rax]", vec![]),
        ("0f183d00000000", "prefetchit0 [rip]", vec![]),
        ("0f183500000000", "prefetchit1 [rip]", vec![]),
        ("62f27d49c60c08", "vgatherpf0dps [rax+zmm1]{k1}", vec![]),
        ("62f27d49c62c08", "vscatterpf0dps [rax+zmm1]{k1}", vec![]),
        ("0fae38", "clflush [rax]", vec![]),
        ("660fae38", "clflushopt [rax]", vec![]),
        ("660fae30", "clwb [rax]", vec![]),
        ("0f1c00", "cldemote [rax]", vec![]),
        ("0f01c8", "monitor", vec![]),
        ("f30faef0", "umonitor rax", vec![]),
        ("488b00", "mov rax, [rax]", vec![("move", 8, 1, 0)]),
        ("8808", "mov [rax], cl", vec![("move", 1, 0, 1)]),
        ("0fb700", "movzx eax, word [rax]", vec![("move", 2, 1, 0)]),
        ("0f4400", "cmove eax, [rax]", vec![("move", 4, 1, 0)]),
        ("830001", "add dword [rax], 1", vec![("integer", 4, 1, 1)]),
        ("3908", "cmp [rax], ecx", vec![("integer", 4, 1, 0)]),
        ("f0480fc108", "lock xadd [rax], rcx", vec![("atomic", 8, 1, 1)]),
        ("8708", "xchg [rax], ecx", vec![("atomic", 4, 1, 1)]),
        ("50", "push rax", vec![("stack", 8, 0, 1)]),
        ("ff30", "push qword [rax]", vec![("stack", 8, 1, 1)]),
        ("a4", "movsb", vec![("string", 1, 1, 1)]),
        ("f348ab", "rep stosq", vec![("string", 8, 0, 1)]),
        ("f30f6f00", "movdqu xmm0, [rax]", vec![("vector", 16, 1, 0)]),
        ("c5fe7f00", "vmovdqu [rax], ymm0", vec![("vector", 32, 0, 1)]),
        ("62f17c481000", "vmovups zmm0, [rax]", vec![("vector", 64, 1, 0)]),
        ("f30f5800", "addss xmm0, [rax]", vec![("vector", 4, 1, 0)]),
        ("f2480f2c00", "cvttsd2si rax, [rax]", vec![("vector", 8, 1, 0)]),
        ("0fae18", "stmxcsr [rax]", vec![("vector", 4, 0, 1)]),
        ("c5f8ae10", "vldmxcsr [rax]", vec![("vector", 4, 1, 0)]),
        ("c4e27b4b0408", "tileloadd tmm0, [rax+rcx]", vec![("vector", 0, 1, 0)]),
        ("480fc308", "movnti [rax], rcx", vec![("move", 8, 0, 1)]),
        ("f20f38f000", "crc32 eax, byte [rax]", vec![("integer", 1, 1, 0)]),
        ("db08", "fisttp dword [rax]", vec![("float", 4, 0, 1)]),
        ("dd00", "fld qword [rax]", vec![("float", 8, 1, 0)]),
        ("d938", "fnstcw [rax]", vec![("float", 2, 0, 1)]),
        ("c4e269900408", "vpgatherdd xmm0, [rax+xmm1], xmm2", vec![("gather", 4, 1, 0)]),
        ("0fae20", "xsave [rax]", vec![("system", 0, 1, 1)]),
    ] {
        assert_eq!(of(code), expected, "{what}");
    }
}

#[test]
fn a_branch_through_memory_reads_its_target_and_a_call_writes_where_it_returns_to() {
    assert_eq!(accesses(&bytes("ff20"), Execution::Bits64), [("branch", 8, 1, 0)]);
    assert_eq!(accesses(&bytes("ff10"), Execution::Bits64), [("stack", 8, 1, 1)]);
    assert_eq!(accesses(&bytes("c3"), Execution::Bits64), [("stack", 8, 1, 0)]);
}

#[test]
fn other_code_sizes_have_other_widths() {
    assert_eq!(accesses(&bytes("50c3"), Execution::Bits32), [("stack", 4, 1, 1)]);
    assert_eq!(accesses(&bytes("50c3"), Execution::Bits16), [("stack", 2, 1, 1)]);
}

#[test]
fn every_class_has_its_place() {
    for (number, class) in InstructionClass::ALL.into_iter().enumerate() {
        assert_eq!(class as usize, number);
    }
}
