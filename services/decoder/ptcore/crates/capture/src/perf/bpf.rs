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
