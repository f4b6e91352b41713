//! Constructors that are templates. Unlike those of other templates their parameters stand behind no return type
//! (Itanium C++ ABI, 5.1.5.3, "Function types"); cpp_demangle takes the first one for it.

use super::{cpp_options, cpp_parse, Limited, MAX_PLACES};
use cpp_demangle::{BorrowedSymbol, Symbol};

/// The name with a return type; `None` where it is of no such constructor, nor of what is local to one.
pub fn with_return_type(name: &str) -> Option<String> {
    let nested = name.strip_prefix("_Z")?.trim_start_matches('Z');
    let template = |at: usize| matches!(nested.as_bytes().get(at + 1..at + 3), Some([b'1'..=b'4', b'I']));
    let mut places = nested.match_indices('C').map(|(at, _)| at).filter(|&at| template(at)).take(MAX_PLACES);
    places.find(|&at| may_be_destroyed(&nested[..at]))?;
    // By itself it is read as the name of a type, of which parameters are no part.
    let (_, parameters) = BorrowedSymbol::with_tail_and_options(nested.as_bytes(), &cpp_parse()).ok()?;
    let end = name.len() - parameters.len();
    // Nothing refers back to a builtin type: the numbers of the others stay.
    Some([name.get(..end)?, "v", name.get(end..)?].concat())
}

/// Whether a nested name that begins so may go on with a destructor: not where an identifier has not ended, or arguments.
fn may_be_destroyed(class: &str) -> bool {
    let destructor = format!("_Z{class}D1Ev");
    let Ok(symbol) = Symbol::new_with_options(&destructor, &cpp_parse()) else { return false };
    let mut text = Limited(String::new());
    let written = symbol.structured_demangle(&mut text, &cpp_options().no_params());
    written.is_ok() && text.0.rsplit("::").next().is_some_and(|last| last.starts_with('~'))
}

#[cfg(test)]
mod tests {
    use crate::demangle::demangle;

    #[test]
    fn templates_of_constructors_keep_their_first_parameter() {
        for (name, expected) in [
            ("_ZN1AC1IiEET_PS1_i", "A::A<int>(int, int*, int)"),
            ("_ZN1AC2IiEEi", "A::A<int>(int)"),
            ("_ZN1AC1IJidEEEDpT_", "A::A<int, double>(int, double)"),
            ("_ZN1AIiEC1IiEET_PS2_i", "A<int>::A<int>(int, int*, int)"),
            ("_ZN1AC1I1BIN1CEEEET_", "A::A<B<C> >(B<C>)"),
            ("_ZN1AC1IiEET_PS1_i.isra.0", "A::A<int>(int, int*, int) [clone .isra.0]"),
            ("_ZZN1AC1IiEET_iENKUlvE_clEv", "A::A<int>(int, int)::{lambda()#1}::operator()() const"),
            ("_ZN1AC1IZN1n1fIiEEvT_EUlvE_EEOS2_", "A::A<n::f<int>(int)::{lambda()#1}>(n::f&&)"),
        ] {
            assert_eq!(demangle(name), expected);
        }
    }

    #[test]
    fn what_only_looks_like_a_constructor_keeps_its_return_type() {
        for (name, expected) in [
            ("_ZN1A2C1IiEEvT_", "A::C1<int>(int)"),
            ("_ZN4xxC14xxC1IiEEvT_", "xxC1::xxC1<int>(int)"),
            ("_ZN1A4C1IxIiEEvT_", "A::C1Ix<int>(int)"),
            ("_ZN1n3runIZN1AC1IiEEiEUlvE_EEvi", "n::run<A::A<int>()::{lambda()#1}>(int)"),
            ("_ZN1nC1I", "_ZN1nC1I"),
            ("_ZN3\u{e9}C1IiEEi", "_ZN3\u{e9}C1IiEEi"),
        ] {
            assert_eq!(demangle(name), expected);
        }
    }
}
