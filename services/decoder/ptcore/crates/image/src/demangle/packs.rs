//! Packs of arguments that have none, of which cpp_demangle writes the comma in front and what would stand at each.

use memchr::memchr2_iter;

/// `f<int>(int)` for `f<int, >(int, const&)`, as binutils writes it.
pub fn without_empty(text: String) -> String {
    let mut closing = memchr2_iter(b'>', b')', text.as_bytes());
    if closing.all(|at| before_empty(&text[..at], char::from(text.as_bytes()[at])).is_none()) {
        return text;
    }
    let mut written = String::with_capacity(text.len());
    for one in text.chars() {
        let whole = written.len();
        if matches!(one, '>' | ')') {
            while let Some(end) = before_empty(&written, one) {
                written.truncate(end);
            }
        }
        if written.len() < whole && one == '>' && written.ends_with('>') {
            written.push(' ');
        }
        written.push(one);
    }
    written
}

/// Where a list of arguments, which `close` ends, has its last one that is something; `None` where that is the last of all.
fn before_empty(list: &str, close: char) -> Option<usize> {
    let rest = list.trim_end_matches(['&', '*']);
    let rest = rest.strip_suffix("const").unwrap_or(rest);
    if let Some(before) = rest.strip_suffix(", ") {
        return Some(before.len());
    }
    let before = rest.strip_suffix(if close == '>' { '<' } else { '(' })?;
    // Behind anything else stands the type of a pointer or a reference: `int (*)(int)`, `int (*(*)())()`.
    let called = |one: char| one.is_alphanumeric() || matches!(one, '_' | '>' | ')' | ']' | '}');
    (rest.len() < list.len() && before.ends_with(called)).then_some(rest.len())
}

#[cfg(test)]
mod tests {
    use crate::demangle::demangle;

    #[test]
    fn packs_without_arguments_leave_no_comma() {
        for (name, expected) in [
            ("_ZN1MIiJEE2goEv", "M<int>::go()"),
            ("_ZN1MIiJEJEE2goEv", "M<int>::go()"),
            ("_ZN1MIJEJEE2goEv", "M<>::go()"),
            ("_ZN1MI1NIiJEEJEE2goEv", "M<N<int> >::go()"),
            ("_ZN1MI1NIiJEEE2goEv", "M<N<int> >::go()"),
            ("_Z1fIiJEEvT_DpT0_", "f<int>(int)"),
            ("_Z1fIiJEEvT_DpRKT0_", "f<int>(int)"),
            ("_Z1gIiJEEvPFvT_DpT0_E", "g<int>(void (*)(int))"),
            ("_ZN1V7emplaceIJEEEvDpOT_", "V::emplace<>()"),
            ("_ZN1SC1IJEEEDpOT_", "S::S<>()"),
        ] {
            assert_eq!(demangle(name), expected);
        }
    }

    #[test]
    fn what_has_arguments_stays() {
        for (name, expected) in [
            ("_ZcmIiEvT_S0_", "operator,<int>(int, int)"),
            ("_ZgtIiJEEvT_S0_", "operator><int>(int, int)"),
            ("_ZN1nptIiEEvT_", "n::operator-><int>(int)"),
            ("_Z1fIXadL_ZN1ncmENS0_1BES1_EEJEEvv", "f<&n::operator,(n::B, n::B)>()"),
            ("_Z1fPFvRiEOA3_iPPK1A", "f(void (*)(int&), int (&&) [3], A const**)"),
            ("_Z1fPFPFvvEvE", "f(void (*(*)())())"),
            ("_Z1fM1AFviE", "f(void (A::*)(int))"),
        ] {
            assert_eq!(demangle(name), expected);
        }
    }
}
