//! The code of BPF programs, as perf keeps it in the header (HEADER_BPF_PROG_INFO; `struct perf_bpil` in
//! tools/perf/util/bpf-utils.h, `struct bpf_prog_info` in include/uapi/linux/bpf.h).

use crate::fields::{Fields, Short};
use std::collections::HashMap;
use std::sync::Arc;

/// Which arrays stand behind an info.
const JITED_INSNS: u64 = 1 << 0;
const JITED_KSYMS: u64 = 1 << 3;
const JITED_FUNC_LENS: u64 = 1 << 4;

/// Machine code by the address of the function.
pub type Programs = HashMap<u64, Arc<[u8]>>;

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
    for _ in 0..u32_at(104)?.min(u32_at(108)?) {
        let (address, size) = (addresses.u64()?, sizes.u32()?);
        programs.insert(address, code.bytes(size.into())?.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::perf::recording::{halves, kcore, runs, text, words, Folder, Id, Pipe, KERNEL, NOP_RET, TWO_NOPS_RET};

    /// `struct perf_bpil`, `struct bpf_prog_info` and the arrays: two functions of a program, as one section of the header.
    fn bpf_programs(functions: &[(u64, &[u8])]) -> Vec<u8> {
        let code: Vec<u8> = functions.iter().flat_map(|(_, code)| code.iter().copied()).collect();
        let addresses = words(&functions.iter().map(|&(address, _)| address).collect::<Vec<_>>());
        let sizes = halves(&functions.iter().map(|(_, code)| code.len() as u32).collect::<Vec<_>>());
        let mut info = vec![0; 224];
        let mut set = |at: usize, bytes: &[u8]| info[at..at + bytes.len()].copy_from_slice(bytes);
        set(16, &(code.len() as u32).to_le_bytes());
        set(24, &words(&[0]));
        set(104, &halves(&[functions.len() as u32, functions.len() as u32]));
        set(112, &words(&[code.len() as u64, (code.len() + addresses.len()) as u64]));
        let data = [code, addresses, sizes].concat();
        [halves(&[1, 224, data.len() as u32]), words(&[0b11001]), info, data].concat()
    }

    fn ksymbol(pipe: &mut Pipe, address: u64, gone: bool, id: Id) {
        let flags = [1u16.to_le_bytes(), u16::from(gone).to_le_bytes()].concat();
        pipe.event(17, 1, &[words(&[address]), halves(&[4]), flags, text("bpf_prog_abc_count")].concat(), id);
    }

    #[test]
    fn bpf_programs_run_from_their_ksymbol_until_they_are_removed() {
        let folder = Folder::new("bpf");
        let mut pipe = Pipe::new();
        let (one, two) = (KERNEL + 0x1000, KERNEL + 0x2000);
        pipe.record(80, 0, &[words(&[25]), bpf_programs(&[(one, &NOP_RET), (two, &TWO_NOPS_RET)])].concat());
        pipe.enters((7, 7, 10, 0));
        ksymbol(&mut pipe, one, false, (7, 7, 20, 0));
        ksymbol(&mut pipe, two, false, (7, 7, 20, 0));
        // BPF_EVENT: the program was loaded; its id and tag say nothing about code.
        pipe.event(18, 1, &[vec![1, 0, 0, 0], halves(&[33]), vec![9; 8]].concat(), (7, 7, 20, 0));
        ksymbol(&mut pipe, one, true, (7, 7, 250, 0));
        pipe.ran(0, &[(100, one), (200, two), (300, one)]);
        let capture = pipe.open(&folder, kcore(&folder));
        assert_eq!(capture.warnings, Vec::<String>::new());
        assert_eq!(runs(&capture), [(7, vec![2, 3, 0])]);
        let last = capture.streams[0].epochs.last().unwrap().1;
        assert_eq!(capture.memory().why_no_code(last, one), "bpf_prog_abc_count: it was removed before");
    }

    #[test]
    fn a_ksymbol_without_code_says_what_is_missing() {
        let folder = Folder::new("ksymbol");
        let mut pipe = Pipe::new();
        ksymbol(&mut pipe, KERNEL + 0x1000, false, (7, 7, 20, 0));
        pipe.ran(0, &[(100, KERNEL + 0x1000)]);
        let capture = pipe.open(&folder, kcore(&folder));
        let why = capture.memory().why_no_code(0, KERNEL + 0x1000);
        assert_eq!(why, "bpf_prog_abc_count: the code of BPF programs and trampolines is not in the recording");
    }
}
