//! Calls of `__fentry__`, with which functions begin in the kernel's file (`gcc -mfentry`). At boot the kernel makes no-ops of
//! all of them (kernel/trace/ftrace.c of Linux, `ftrace_init`).

use std::collections::HashMap;

const CALL: u8 = 0xe8;
const JMP: u8 = 0xe9;
const NOP: u8 = 0x90;
const RET: u8 = 0xc3;
const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
/// Kernels have some tens of thousands, and of functions that are called twice as many.
const MAX_CALLS: usize = 1 << 18;
const MAX_CALLEES: usize = 1 << 20;

/// Code at its address.
pub type Part<'b> = (u64, &'b [u8]);

/// The addresses of all calls of it. Of a kernel that calls it to have itself traced all the time (without
/// CONFIG_DYNAMIC_FTRACE), where it does more than to return, there are none.
pub fn of(parts: &[Part<'_>], fentry: u64) -> Vec<u64> {
    if !returns_at_once(parts, fentry) {
        return Vec::new();
    }
    let calls = parts.iter().flat_map(direct_calls).filter(|&(_, callee)| callee == fentry);
    calls.map(|(at, _)| at).take(MAX_CALLS).collect()
}

/// What is `__fentry__` in a file without names, if functions call it.
pub fn most_called(parts: &[Part<'_>]) -> Option<u64> {
    let mut times = HashMap::<u64, usize>::new();
    for (_, callee) in parts.iter().flat_map(direct_calls) {
        // Other bytes look like calls too, of what is no code for the most part.
        if code_at(parts, callee).is_some() && (times.len() < MAX_CALLEES || times.contains_key(&callee)) {
            *times.entry(callee).or_default() += 1;
        }
    }
    times.into_iter().max_by_key(|&(callee, times)| (times, callee)).map(|(callee, _)| callee)
}

/// Call and callee of whatever looks like one.
fn direct_calls<'b>(&(address, code): &Part<'b>) -> impl Iterator<Item = (u64, u64)> + use<'b> {
    code.windows(5).enumerate().filter(|(_, bytes)| bytes[0] == CALL).map(move |(at, bytes)| {
        let at = address.wrapping_add(at as u64);
        (at, led_to(at, bytes))
    })
}

/// Where a direct call or jump leads to.
fn led_to(at: u64, branch: &[u8]) -> u64 {
    let displacement = branch[1..5].try_into().map_or(0, i32::from_le_bytes);
    at.wrapping_add(5).wrapping_add(displacement as u64)
}

/// Whether a function does nothing; where processors must not predict returns they are jumps to one (`__x86_return_thunk`).
fn returns_at_once(parts: &[Part<'_>], function: u64) -> bool {
    let Some(code) = code_at(parts, function) else { return false };
    let behind = code.strip_prefix(&ENDBR64).unwrap_or(code);
    // Room for what the kernel puts there where it counts calls.
    let nops = behind.iter().take_while(|&&byte| byte == NOP).count();
    match &behind[nops..] {
        [RET, ..] => true,
        jump @ [JMP, _, _, _, _, ..] => {
            let at = function.wrapping_add((code.len() - jump.len()) as u64);
            code_at(parts, led_to(at, jump)).is_some_and(|code| code.starts_with(&[RET]))
        }
        _ => false,
    }
}

fn code_at<'b>(parts: &[Part<'b>], address: u64) -> Option<&'b [u8]> {
    parts.iter().find_map(|&(start, code)| {
        let inside = usize::try_from(address.checked_sub(start)?).ok()?;
        code.get(inside..).filter(|code| !code.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: u64 = 0xffff_ffff_8100_0000;
    /// 16 bytes each: a function that is traced calls another one, twice; one that only returns, and one that does more.
    const TRACED: usize = 0;
    const RETURNS: usize = 16;
    const WORKS: usize = 32;

    fn code(fentry: &[u8], called: [usize; 3]) -> Vec<u8> {
        let mut code = vec![NOP; 64];
        for (at, callee) in [4, 9, 48].into_iter().zip(called) {
            code[at] = CALL;
            code[at + 1..at + 5].copy_from_slice(&(callee as i32 - at as i32 - 5).to_le_bytes());
        }
        code[TRACED..4].copy_from_slice(&ENDBR64);
        code[RETURNS..][..fentry.len()].copy_from_slice(fentry);
        code[WORKS..][..3].copy_from_slice(&[0x31, 0xc0, RET]);
        code
    }

    fn calls_of(code: &[u8], fentry: usize) -> Vec<u64> {
        of(&[(AT, code)], AT + fentry as u64).into_iter().map(|at| at - AT).collect()
    }

    #[test]
    fn all_calls_of_what_only_returns_are_found() {
        assert_eq!(calls_of(&code(&[RET], [RETURNS, WORKS, RETURNS]), RETURNS), [4, 48]);
        // It may return by a jump, behind room for other code.
        let thunk = [&ENDBR64[..], &[NOP, NOP, JMP], &(WORKS as i32 + 2 - RETURNS as i32 - 11).to_le_bytes()].concat();
        assert_eq!(calls_of(&code(&thunk, [RETURNS, WORKS, WORKS]), RETURNS), [4]);
    }

    #[test]
    fn a_kernel_that_is_traced_all_the_time_calls_it() {
        // cmp, jne, ret
        assert_eq!(calls_of(&code(&[0x38, 0xc0, 0x75, 1, RET], [RETURNS; 3]), RETURNS), [0; 0]);
    }

    #[test]
    fn without_names_it_is_what_is_called_most() {
        let most = |called| most_called(&[(AT, &code(&[RET], called))]).map(|callee| callee - AT);
        assert_eq!(most([RETURNS, WORKS, RETURNS]), Some(RETURNS as u64));
        assert_eq!(most([4096; 3]), None);
    }
}
