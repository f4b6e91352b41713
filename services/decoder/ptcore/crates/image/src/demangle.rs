//! Names as people write them.

mod constructors;
mod declarators;
mod packs;
mod patterns;
mod prefixes;

use crate::name::MAX_NAME;
use crate::swift;
use cpp_demangle::{DemangleOptions, ParseOptions, Symbol};
use prefixes::Prefixes;
use std::fmt::{self, Write};

const RECURSION: u32 = 96;
/// Letters may be an operator or a constructor in so many places of a name at most.
const MAX_PLACES: usize = 16;

/// The C++, Rust or Swift name behind a mangled one; any other name as it is.
pub fn demangle(name: &str) -> String {
    if let Ok(symbol) = rustc_demangle::try_demangle(name) {
        let mut text = Limited(String::new());
        if write!(text, "{symbol:#}").is_ok() {
            return text.0;
        }
    } else if name.starts_with("_Z") || name.starts_with("___Z") {
        if let Some(text) = cpp(name) {
            return text;
        }
    } else if let Some(text) = swift::demangle(name) {
        return text;
    }
    name.to_owned()
}

fn cpp(name: &str) -> Option<String> {
    if let Some((what, function)) = thunk(name) {
        return cpp_after(what, &format!("_Z{function}"));
    }
    let constructor = constructors::with_return_type(name).and_then(|name| cpp_after("", &name));
    constructor.or_else(|| cpp_after("", name)).or_else(|| with_await(name))
}

/// A name with an operator that cpp_demangle does not know (Itanium C++ ABI, 5.1.3, "Operator Encodings"): by way of an
/// operator that a vendor may add.
fn with_await(name: &str) -> Option<String> {
    const OF_VENDOR: &str = "operatorco_await::operator 1";
    let places = name.match_indices("aw").take(MAX_PLACES);
    let candidates = places.map(|(at, code)| [&name[..at], "v18co_await", &name[at + code.len()..]].concat());
    let read = candidates.filter_map(|candidate| cpp_after("", &candidate));
    read.map(|text| text.replacen(OF_VENDOR, "operator co_await", 1)).find(|text| text.contains("operator co_await"))
}

fn cpp_after(before: &str, name: &str) -> Option<String> {
    let symbol = Symbol::new_with_options(name, &cpp_parse()).ok()?;
    let mut written = Prefixes::behind(before);
    symbol.structured_demangle(&mut written, &cpp_options().no_return_type()).ok()?;
    let has_packs = written.has_packs();
    let mut text = written.into_text()?;
    if has_packs {
        text = patterns::with_patterns(before, name, &text).unwrap_or(text);
    }
    Some(large_clones(&literal_operators(packs::without_empty(text))))
}

fn cpp_parse() -> ParseOptions {
    ParseOptions::default().recursion_limit(RECURSION)
}

fn cpp_options() -> DemangleOptions {
    DemangleOptions::new().recursion_limit(RECURSION)
}

/// What a thunk is, in the words of binutils, and the mangled function that it leads to: cpp_demangle writes it as a term
/// with numbers. Itanium C++ ABI, 5.1.4, "Virtual Tables and RTTI".
fn thunk(name: &str) -> Option<(&'static str, &str)> {
    let rest = name.strip_prefix("_ZT")?;
    Some(match rest.as_bytes().first()? {
        b'h' => ("non-virtual thunk to ", behind_offset(rest)?),
        b'v' => ("virtual thunk to ", behind_offset(rest)?),
        b'c' => ("covariant return thunk to ", behind_offset(behind_offset(&rest[1..])?)?),
        _ => return None,
    })
}

/// What comes behind a call offset: `h` with one number, `v` with two, each with a `_` behind it.
fn behind_offset(text: &str) -> Option<&str> {
    let number = |text| {
        let text: &str = text;
        text.trim_start_matches(|one: char| one == 'n' || one.is_ascii_digit()).strip_prefix('_')
    };
    match text.strip_prefix('h') {
        Some(rest) => number(rest),
        None => number(number(text.strip_prefix('v')?)?),
    }
}

/// `operator"" _km` for what cpp_demangle writes as `operator_km::operator ""`.
fn literal_operators(mut text: String) -> String {
    const WRITTEN: &str = "::operator \"\"";
    while let Some(end) = text.find(WRITTEN) {
        let Some(start) = text[..end].rfind("operator") else { break };
        let suffix = text[start + "operator".len()..end].to_owned();
        if suffix.is_empty() || !suffix.chars().all(|one| one == '_' || one.is_alphanumeric()) {
            break;
        }
        text.replace_range(start..end + WRITTEN.len(), &format!("operator\"\" {suffix}"));
    }
    text
}

/// ` [clone .llvm.11688825044049300516]` for what cpp_demangle takes for two where the number has more than 63 bits: the
/// linker numbers functions so that several files share.
fn large_clones(text: &str) -> String {
    const PART: &str = "] [clone .";
    let mut parts = text.split(PART);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |before, part| {
        before + if part.starts_with(|one: char| one.is_ascii_digit()) { "." } else { PART } + part
    })
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
