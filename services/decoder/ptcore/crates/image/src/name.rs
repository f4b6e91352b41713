//! How long names may be, and what they say of their functions.

/// Names of more bytes are cut, whether mangled or not.
pub const MAX_NAME: usize = 1 << 12;

/// What a function does to the stack of calls beside calling and returning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    #[default]
    Plain,
    /// It leaves by jumping to such an address.
    LongJump,
    /// Its return address can be jumped to later.
    SetJump,
    /// It goes on with other calls than those around it, as it returns or jumps or by what jumps far in it: with those of a goroutine or
    /// a fiber.
    Switch,
    /// It only leads to another function, as `malloc@plt` and retpolines do: who calls it calls that one.
    Stub,
    /// It only returns, in place of its caller, which jumps to it instead of returning: a return thunk.
    ReturnStub,
    /// Where a program begins (`e_entry` of its file or its loader's): no signal leads there.
    Start,
}

/// How the names of thunks begin that lead to another function.
const INDIRECT: [&[u8]; 5] = [
    b"__x86_indirect_thunk_",
    b"__x86_indirect_call_thunk_",
    b"__x86_indirect_jump_thunk_",
    b"__x86_indirect_its_thunk_",
    b"__llvm_retpoline_",
];

impl Role {
    /// Whether what it jumps to may be anything but a call in its place.
    pub fn jumps_far(self) -> bool {
        matches!(self, Role::LongJump | Role::Switch)
    }

    /// Whether its calls are others than most: where they return to, or who goes on then.
    pub fn returns_oddly(self) -> bool {
        matches!(self, Role::SetJump | Role::Switch)
    }

    /// Whether it is no call of its own.
    pub fn is_stub(self) -> bool {
        matches!(self, Role::Stub | Role::ReturnStub)
    }

    /// By the names that glibc, musl, Free Pascal (rtl/x86_64/setjmp.inc), Go (runtime/asm_amd64.s), the kernel
    /// (arch/x86/lib/retpoline.S), compilers and what makes coroutines use: Boost.Context, bRPC, libco, libcoro, Ruby, D, greenlet and
    /// QEMU.
    pub fn of(name: &[u8]) -> Role {
        match name {
            b"setjmp" | b"_setjmp" | b"__setjmp" | b"sigsetjmp" | b"__sigsetjmp" | b"fpc_setjmp" | b"FPC_SETJMP" => {
                Role::SetJump
            }
            b"longjmp" | b"_longjmp" | b"__longjmp" | b"siglongjmp" | b"__libc_longjmp" | b"__libc_siglongjmp"
            | b"__longjmp_chk" | b"____longjmp_chk" | b"fpc_longjmp" | b"FPC_LONGJMP" | b"runtime.gogo"
            | b"runtime.gogo.abi0" | b"gogo" => Role::LongJump,
            b"swapcontext"
            | b"setcontext"
            | b"runtime.execute"
            | b"runtime.coroswitch_m"
            | b"jump_fcontext"
            | b"ontop_fcontext"
            | b"bthread_jump_fcontext"
            | b"coctx_swap"
            | b"coro_transfer"
            | b"coroutine_transfer"
            | b"fiber_switchContext"
            | b"slp_switch"
            | b"qemu_coroutine_switch" => Role::Switch,
            b"__x86_return_thunk"
            | b"__x86_return_thunk_ecx"
            | b"__x86_return_thunk_rcx"
            | b"__x86_return_skl"
            | b"call_depth_return_thunk"
            | b"its_return_thunk"
            | b"retbleed_return_thunk"
            | b"srso_return_thunk"
            | b"srso_alias_return_thunk"
            | b"srso_safe_ret"
            | b"srso_alias_safe_ret" => Role::ReturnStub,
            _ if INDIRECT.iter().any(|begin| name.starts_with(begin)) => Role::Stub,
            _ => Role::Plain,
        }
    }
}
