//! Names as people write them.

use crate::name::MAX_NAME;
use crate::swift;
use cpp_demangle::{DemangleOptions, ParseOptions, Symbol};
use std::fmt::{self, Write};

const RECURSION: u32 = 96;

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
    let parse = ParseOptions::default().recursion_limit(RECURSION);
    let symbol = Symbol::new_with_options(name, &parse).ok()?;
    let options = DemangleOptions::new().no_return_type().recursion_limit(RECURSION);
    let mut text = Limited(String::new());
    symbol.structured_demangle(&mut text, &options).ok()?;
    Some(text.0)
}

/// Text of bounded length: substitutions let a short mangled name grow without end.
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
