//! Names as people write them.

mod parser;
mod printer;
mod tree;

use crate::name::MAX_NAME;
use crate::swift;
use parser::{Parser, Scopes};
use printer::Printer;
use std::fmt::{self, Write};

/// What is longer is not read: its name would hardly be short enough.
const MAX_MANGLED: usize = 16 * MAX_NAME;

/// The C++, Rust or Swift name behind a mangled one; any other name as it is.
pub fn demangle(name: &str) -> String {
    demangled(name).unwrap_or_else(|| name.to_owned())
}

fn demangled(name: &str) -> Option<String> {
    let is_mangled = name.starts_with("_Z") || name.starts_with("___Z");
    if is_mangled && !has_hash(name) {
        return cpp(name);
    }
    match rustc_demangle::try_demangle(name) {
        Ok(symbol) => {
            let mut text = Limited(String::new());
            write!(text, "{symbol:#}").ok()?;
            Some(text.0)
        }
        Err(_) if is_mangled => cpp(name),
        Err(_) => swift::demangle(name),
    }
}

/// Whether a name ends in a hash as Rust's do that look like those of C++: `17h0123456789abcdefE`.
fn has_hash(name: &str) -> bool {
    const HASH: &str = "17h";
    let Some(at) = name.rfind(HASH) else { return false };
    let mut behind = name[at + HASH.len()..].bytes();
    behind.by_ref().take(16).all(|one| one.is_ascii_hexdigit()) && behind.next() == Some(b'E')
}

/// `None` for what is not understood.
fn cpp(name: &str) -> Option<String> {
    if name.len() > MAX_MANGLED {
        return None;
    }
    written(name, Scopes::Names).or_else(|| written(name, Scopes::Types))
}

fn written(name: &str, scopes: Scopes) -> Option<String> {
    let mut parser = Parser::new(name, scopes);
    let (encoding, clones) = parser.mangled_name()?;
    let mut printer = Printer::new(&parser.tree);
    printer.print(encoding)?;
    for clone in clones {
        printer.write(" [clone ")?;
        printer.write(clone)?;
        printer.write("]")?;
    }
    Some(printer.text)
}

/// Text of bounded length: substitutions let a short mangled name grow without end.
#[derive(Default)]
struct Limited(String);

impl Write for Limited {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > MAX_NAME {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpp_names_keep_their_parameters() {
        assert_eq!(demangle("_ZN5store3putERKSsi"), "store::put(std::string const&, int)");
    }

    #[test]
    fn rust_names_lose_their_hash() {
        assert_eq!(demangle("_ZN4core3fmt5write17h0123456789abcdefE"), "core::fmt::write");
        assert_eq!(demangle("_RNvC6_123foo3bar"), "123foo::bar");
    }

    #[test]
    fn variables_of_cpp_are_none_of_rust() {
        assert_eq!(demangle("_ZN12_GLOBAL__N_14poolE"), "(anonymous namespace)::pool");
    }

    #[test]
    fn coroutines_are_awaited_by_an_operator() {
        assert_eq!(demangle("_ZN1AawEv"), "A::operator co_await()");
        assert_eq!(demangle("_ZN1nawENS_1DE"), "n::operator co_await(n::D)");
        assert_eq!(demangle("_ZN4drawawEv"), "draw::operator co_await()");
        assert_eq!(demangle("_ZZN1AawEvENKUlvE_clEv"), "A::operator co_await()::{lambda()#1}::operator()() const");
        // Nothing that demangles.
        assert_eq!(demangle("_ZN4drawQQEv"), "_ZN4drawQQEv");
    }

    #[test]
    fn a_clone_has_its_whole_number() {
        let large = "_ZL3foov.llvm.11688825044049300516";
        assert_eq!(demangle(large), "foo() [clone .llvm.11688825044049300516]");
        assert_eq!(demangle("_ZL3foov.llvm.123.warm"), "foo() [clone .llvm.123] [clone .warm]");
        let unique = "_ZL6helperi.__uniq.705.llvm.17641974801671036587";
        assert_eq!(demangle(unique), "helper(int) [clone .__uniq.705] [clone .llvm.17641974801671036587]");
        let both = "_ZL1fv.__uniq.11688825044049300516.llvm.17641974801671036587";
        assert_eq!(demangle(both), "f() [clone .__uniq.11688825044049300516] [clone .llvm.17641974801671036587]");
    }

    #[test]
    fn thunks_say_where_they_lead() {
        for (name, expected) in [
            ("_ZThn8_N1D2wfEi", "non-virtual thunk to D::wf(int)"),
            ("_ZTv0_n24_N1D1xEv", "virtual thunk to D::x()"),
            ("_ZTch0_v0_n24_N1D1cEv", "covariant return thunk to D::c()"),
            ("_ZThn8_N1DD1Ev", "non-virtual thunk to D::~D()"),
        ] {
            assert_eq!(demangle(name), expected);
        }
        for name in ["_ZTh", "_ZTv0_", "_ZTch0_", "_ZThn8_", "_ZTc\u{e9}"] {
            assert_eq!(demangle(name), name);
        }
    }

    #[test]
    fn operators_of_literals_are_written_as_in_the_source() {
        assert_eq!(demangle("_Zli3_kmy"), "operator\"\" _km(unsigned long long)");
        assert_eq!(demangle("_ZN5unitsli2_sEPKcm"), "units::operator\"\" _s(char const*, unsigned long)");
        let inside = demangle("_ZZN5unitsli3_kmEyENKUlvE_clEv");
        assert!(inside.starts_with("units::operator\"\" _km(unsigned long long)::{lambda()#1}"), "{inside}");
    }

    #[test]
    fn other_names_stay() {
        for name in ["processCommand", "_start", "_Z", "_ZN", "_R", ""] {
            assert_eq!(demangle(name), name);
        }
    }

    #[test]
    fn a_name_that_grows_without_end_stays_mangled() {
        // Each pair doubles the one before by substitution.
        let mut name = String::from("_Z1fSt4pairIiiE");
        for level in 0..30 {
            let last = if level == 0 { "S0_".to_owned() } else { format!("S{}_", base36(level)) };
            name += &format!("St4pairI{last}{last}E");
        }
        assert!(demangle(&name).len() <= MAX_NAME);
    }

    fn base36(number: u32) -> String {
        let digit = char::from_digit(number % 36, 36).unwrap().to_ascii_uppercase();
        if number < 36 {
            digit.to_string()
        } else {
            base36(number / 36) + &digit.to_string()
        }
    }
}
