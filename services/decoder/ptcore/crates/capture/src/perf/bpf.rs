//! The code of BPF programs, as perf keeps it in the header (HEADER_BPF_PROG_INFO; `struct perf_bpil` in
//! tools/perf/util/bpf-utils.h, `struct bpf_prog_info` in include/uapi/linux/bpf.h).

use crate::fields::{Fields, Short};
use std::collections::HashMap;
use std::sync::Arc;

/// Which arrays stand behind an info.
const JITED_INSNS: u64 = 1 << 0;
const JITED_KSYMS: u64 = 1 << 3;
const JITED_FUNC_LENS: u64 = 1 << 4;
const PROG_TAGS: u64 = 1 << 8;

/// What the kernel calls functions of BPF programs: with the tag in hex and their own name behind it.
const NAME: &str = "bpf_prog_";

/// A digest of what a function was compiled from: one that takes the place of another has another one.
type Tag = [u8; 8];
/// Of a function whose tag is not told.
const UNTOLD: Tag = [0; 8];

/// Machine code by the address and the tag of the function.
#[derive(Debug, Default)]
pub struct Programs(HashMap<(u64, Tag), Arc<[u8]>>);

impl Programs {
    /// The function that the kernel told of by this name.
    pub fn code(&self, address: u64, name: &str) -> Option<&Arc<[u8]>> {
        let tags = [tag(name).unwrap_or(UNTOLD), UNTOLD];
        tags.iter().find_map(|&tag| self.0.get(&(address, tag)))
    }
}

fn tag(name: &str) -> Option<Tag> {
    let digits = name.strip_prefix(NAME)?.get(..2 * UNTOLD.len())?;
    u64::from_str_radix(digits, 16).ok().map(u64::to_be_bytes)
}

/// Takes the programs of the section; those that are damaged are left out.
pub fn take(section: &[u8], programs: &mut Programs) {
    let mut fields = Fields::new(section, 0);
    let count = fields.u32().unwrap_or(0);
    for _ in 0..count {
        let Ok((info, arrays, data)) = program(&mut fields) else { return };
        // A part that is missing costs its program alone.
        let _ = functions(info, arrays, data, programs);
    }
}

fn program<'d>(fields: &mut Fields<'d>) -> Result<(&'d [u8], u64, &'d [u8]), Short> {
    let (info, data) = (fields.u32()?, fields.u32()?);
    let arrays = fields.u64()?;
    Ok((fields.bytes(info.into())?, arrays, fields.bytes(data.into())?))
}

/// Where the arrays stand in the data is in the info, in place of the addresses that the kernel wants there.
fn functions(info: &[u8], arrays: u64, data: &[u8], programs: &mut Programs) -> Result<(), Short> {
    const NEEDED: u64 = JITED_INSNS | JITED_KSYMS | JITED_FUNC_LENS;
    if arrays & NEEDED != NEEDED {
        return Ok(());
    }
    let u32_at = |at| Fields::new(info, at).u32();
    let array = |at| Ok(Fields::new(data, usize::try_from(Fields::new(info, at).u64()?).unwrap_or(usize::MAX)));
    let (mut code, mut addresses, mut sizes): (Fields, Fields, Fields) = (array(24)?, array(112)?, array(120)?);
    let own = |tags: &mut Fields| tags.bytes(UNTOLD.len() as u64).ok()?.try_into().ok();
    let count = u32_at(104)?.min(u32_at(108)?);
    let mut tags = if arrays & PROG_TAGS != 0 { array(184)? } else { Fields::new(&[], 0) };
    // Each function has its own tag, that of the program as a whole is no function's where there are several.
    let alone = own(&mut Fields::new(info, 8)).filter(|_| count == 1);
    for _ in 0..count {
        let (address, size) = (addresses.u64()?, sizes.u32()?);
        let tag = own(&mut tags).or(alone).unwrap_or(UNTOLD);
        programs.0.insert((address, tag), code.bytes(size.into())?.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::perf::recording::{
        halves, kcore, losses, named, program, runs, text, words, Folder, Id, Pipe, KERNEL, NOP_RET, TWO_NOPS_RET, USER,
    };
    use crate::Options;
    use pt_flow::Reason;
    use pt_packet::{writer::write, Compression, Ip, Packet};

    /// `struct perf_bpil`, `struct bpf_prog_info` and the arrays: the functions of a program with their tags.
    fn bpf_program(functions: &[(u64, u64, &[u8])]) -> Vec<u8> {
        let code: Vec<u8> = functions.iter().flat_map(|(.., code)| code.iter().copied()).collect();
        let addresses = words(&functions.iter().map(|&(address, ..)| address).collect::<Vec<_>>());
        let sizes = halves(&functions.iter().map(|(.., code)| code.len() as u32).collect::<Vec<_>>());
        let tags: Vec<u8> = functions.iter().flat_map(|(_, tag, _)| tag.to_be_bytes()).collect();
        let mut info = vec![0; 224];
        let mut set = |at: usize, bytes: &[u8]| info[at..at + bytes.len()].copy_from_slice(bytes);
        let count = functions.len() as u32;
        let addresses_at = code.len() as u64;
        let sizes_at = addresses_at + addresses.len() as u64;
        set(8, &[0xee; 8]);
        set(16, &(code.len() as u32).to_le_bytes());
        set(104, &halves(&[count, count]));
        set(112, &words(&[addresses_at, sizes_at]));
        set(180, &halves(&[count]));
        set(184, &words(&[sizes_at + sizes.len() as u64]));
        let data = [code, addresses, sizes, tags].concat();
        [halves(&[224, data.len() as u32]), words(&[0b1_0001_1001]), info, data].concat()
    }

    /// HEADER_BPF_PROG_INFO.
    fn programs(pipe: &mut Pipe, programs: &[Vec<u8>]) {
        pipe.record(80, 0, &[words(&[25]), halves(&[programs.len() as u32]), programs.concat()].concat());
    }

    const COUNT: &str = "bpf_prog_00000000000000aa_count";
    const OTHER: &str = "bpf_prog_00000000000000bb_other";

    fn ksymbol(pipe: &mut Pipe, (address, name): (u64, &str), gone: bool, id: Id) {
        let flags = [1u16.to_le_bytes(), u16::from(gone).to_le_bytes()].concat();
        pipe.event(17, 1, &[words(&[address]), halves(&[4]), flags, text(name)].concat(), id);
    }

    #[test]
    fn bpf_programs_run_from_their_ksymbol_until_they_are_removed() {
        let folder = Folder::new("bpf");
        let mut pipe = Pipe::new();
        let (one, two) = (KERNEL + 0x1000, KERNEL + 0x2000);
        programs(&mut pipe, &[bpf_program(&[(one, 0xaa, &NOP_RET), (two, 0xbb, &TWO_NOPS_RET)])]);
        pipe.enters((7, 7, 10, 0));
        ksymbol(&mut pipe, (one, COUNT), false, (7, 7, 20, 0));
        ksymbol(&mut pipe, (two, OTHER), false, (7, 7, 20, 0));
        // BPF_EVENT: the program was loaded; its id and tag say nothing about code.
        pipe.event(18, 1, &[vec![1, 0, 0, 0], halves(&[33]), vec![9; 8]].concat(), (7, 7, 20, 0));
        ksymbol(&mut pipe, (one, COUNT), true, (7, 7, 250, 0));
        pipe.ran(0, &[(100, one), (200, two), (300, one)]);
        let capture = pipe.open(&folder, kcore(&folder));
        assert_eq!(capture.warnings, Vec::<String>::new());
        assert_eq!(runs(&capture), [(7, vec![2, 3, 0])]);
        assert_eq!(named(&capture, two + 1), OTHER);
        let last = capture.streams[0].epochs.last().unwrap().1;
        assert_eq!(capture.memory().why_no_code(last, one), format!("{COUNT}: it was removed before"));
    }

    #[test]
    fn where_no_other_code_of_the_kernel_is_known_that_of_programs_hides_no_return_of_who_called_it() {
        let folder = Folder::new("bpf-hidden");
        // call, nop, ret; syscall, ret.
        program(&folder, "work", &[0xe8, 2, 0, 0, 0, 0x90, 0xc3, 0x0f, 0x05, 0xc3]);
        let at = KERNEL + 0x1000;
        let mut pipe = Pipe::new();
        programs(&mut pipe, &[bpf_program(&[(at, 0xaa, &NOP_RET)])]);
        pipe.enters((7, 7, 10, 0));
        pipe.maps((7, 7, 10, 0), USER, 10, 0x1000, "/work");
        ksymbol(&mut pipe, (at, COUNT), false, (7, 7, 20, 0));
        // A jump that is patched, too.
        pipe.event(20, 1, &[words(&[KERNEL]), vec![1, 0, 1, 0, 0x90, 0xc3], vec![0; 6]].concat(), (7, 7, 30, 0));
        let full = |payload| Ip { compression: Compression::Full, payload };
        let bits = |bits| Packet::Tnt { bits, count: 1 };
        let mut packets = Vec::new();
        let system_call =
            [Packet::Tip(full(KERNEL + 0x100)), bits(0), Packet::Tip(full(at)), bits(1), Packet::Tip(full(KERNEL))];
        [Packet::Psb, Packet::Tsc(100), Packet::Psbend, Packet::TipPge(full(USER))]
            .into_iter()
            .chain(system_call)
            .chain([bits(0), Packet::Tip(full(USER + 9)), bits(1), Packet::TipPgd(full(0x77))])
            .for_each(|packet| write(&mut packets, packet));
        pipe.packets(0, 0, &packets);
        let capture = pipe.open(&folder, Options::default());
        assert_eq!(runs(&capture), [(7, vec![2, 3])]);
        let reasons: Vec<_> = losses(&capture).iter().map(|&(.., reason)| reason).collect();
        assert_eq!(reasons, [Reason::NoKernelCode]);
    }

    #[test]
    fn a_ksymbol_without_code_says_what_is_missing() {
        let folder = Folder::new("ksymbol");
        let mut pipe = Pipe::new();
        ksymbol(&mut pipe, (KERNEL + 0x1000, COUNT), false, (7, 7, 20, 0));
        pipe.ran(0, &[(100, KERNEL + 0x1000)]);
        let capture = pipe.open(&folder, kcore(&folder));
        let why = capture.memory().why_no_code(0, KERNEL + 0x1000);
        assert_eq!(why, format!("{COUNT}: the code of BPF programs and trampolines is not in the recording"));
    }

    #[test]
    fn a_program_without_code_has_not_that_of_the_one_behind_it() {
        let folder = Folder::new("bpf-behind");
        let at = KERNEL + 0x1000;
        let mut pipe = Pipe::new();
        programs(&mut pipe, &[bpf_program(&[(at, 0xbb, &TWO_NOPS_RET)])]);
        pipe.enters((7, 7, 10, 0));
        ksymbol(&mut pipe, (at, COUNT), false, (7, 7, 20, 0));
        ksymbol(&mut pipe, (at, COUNT), true, (7, 7, 120, 0));
        ksymbol(&mut pipe, (at, OTHER), false, (7, 7, 150, 0));
        pipe.ran(0, &[(100, at), (200, at)]);
        assert_eq!(runs(&pipe.open(&folder, kcore(&folder))), [(7, vec![0, 3])]);
    }

    #[test]
    fn of_programs_that_were_at_one_address_each_runs_its_own_code() {
        let folder = Folder::new("bpf-again");
        let at = KERNEL + 0x1000;
        let mut pipe = Pipe::new();
        // perf keeps them by their numbers.
        let both = [(0xbb, &TWO_NOPS_RET), (0xaa, &NOP_RET)].map(|(tag, code)| bpf_program(&[(at, tag, code)]));
        programs(&mut pipe, &both);
        pipe.enters((7, 7, 10, 0));
        ksymbol(&mut pipe, (at, COUNT), false, (7, 7, 20, 0));
        ksymbol(&mut pipe, (at, COUNT), true, (7, 7, 120, 0));
        ksymbol(&mut pipe, (at, OTHER), false, (7, 7, 150, 0));
        ksymbol(&mut pipe, (at, "bpf_prog_00000000000000cc_third"), false, (7, 7, 250, 0));
        pipe.ran(0, &[(100, at), (200, at), (300, at)]);
        assert_eq!(runs(&pipe.open(&folder, kcore(&folder))), [(7, vec![2, 3, 0])]);
    }

    #[test]
    fn the_tag_of_a_program_is_that_of_its_function_where_it_has_but_one() {
        let folder = Folder::new("bpf-tag");
        let at = KERNEL + 0x1000;
        let name = format!("bpf_prog_{}_count", "ee".repeat(8));
        let ran = |functions: &[(u64, u64, &[u8])], arrays: u64, name: &str| {
            let mut pipe = Pipe::new();
            let mut program = bpf_program(functions);
            program[8..16].copy_from_slice(&words(&[arrays]));
            programs(&mut pipe, &[program]);
            pipe.enters((7, 7, 10, 0));
            ksymbol(&mut pipe, (at, name), false, (7, 7, 20, 0));
            pipe.ran(0, &[(100, at)]);
            runs(&pipe.open(&folder, kcore(&folder)))[0].1[0]
        };
        // Without the tags of its functions.
        let arrays = 0b1_1001;
        assert_eq!((ran(&[(at, 0, &NOP_RET)], arrays, &name), ran(&[(at, 0, &NOP_RET)], arrays, COUNT)), (2, 0));
        let two: [(u64, u64, &[u8]); 2] = [(at, 0, &NOP_RET), (at + 0x1000, 0, &NOP_RET)];
        assert_eq!(ran(&two, arrays, COUNT), 2);
    }
}
