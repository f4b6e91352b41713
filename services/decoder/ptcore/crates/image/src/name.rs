//! How long names may be, and what they say of their functions.

/// Names longer than this are cut, whether mangled or not.
pub const MAX_NAME: usize = 1 << 12;

/// What a function does to the stack of calls beside calling and returning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    #[default]
    Plain,
    /// Its return address can be jumped to later.
    SetJump,
    /// It leaves by jumping to such an address.
    LongJump,
    /// It only leads to another function, as `malloc@plt` and retpolines do: who calls it calls that one.
    Stub,
}

impl Role {
    /// By the names that glibc, musl, the kernel and compilers use.
    pub fn of(name: &[u8]) -> Role {
        match name {
            b"setjmp" | b"_setjmp" | b"__setjmp" | b"sigsetjmp" | b"__sigsetjmp" => Role::SetJump,
            b"longjmp" | b"_longjmp" | b"__longjmp" | b"siglongjmp" | b"__libc_longjmp" | b"__libc_siglongjmp"
            | b"__longjmp_chk" | b"____longjmp_chk" => Role::LongJump,
            _ if name.starts_with(b"__x86_indirect_thunk_") || name.starts_with(b"__llvm_retpoline_") => Role::Stub,
            _ => Role::Plain,
        }
    }
}
