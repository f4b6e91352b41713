//! Text of a recording as a terminal may have it.

use std::borrow::Cow;
use std::fmt::Write;

/// The text with what steers terminals or breaks lines written out, as `\x1b` or `\u202e`. Names of threads, files and
/// functions are whatever somebody else wrote.
pub fn escaped(text: &str) -> Cow<'_, str> {
    // Bytes are enough to know nearly all names.
    if text.bytes().all(|byte| (b' '..0x7f).contains(&byte)) || !text.contains(steers) {
        return Cow::Borrowed(text);
    }
    let mut told = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        let code = u32::from(letter);
        let _ = match letter {
            _ if !steers(letter) => told.write_char(letter),
            _ if code < 0x100 => write!(told, "\\x{code:02x}"),
            _ => write!(told, "\\u{code:04x}"),
        };
    }
    Cow::Owned(told)
}

/// The same of a text that may be kept.
pub fn into_escaped(text: String) -> String {
    match escaped(&text) {
        Cow::Owned(told) => told,
        Cow::Borrowed(_) => text,
    }
}

/// Control characters (ECMA-48: C0, DEL, C1), the ends of lines and paragraphs, and what changes the direction of text
/// (UAX #9, section 2).
fn steers(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_a_terminal_is_written_out() {
        assert_eq!(escaped("a\n\t\u{1b}[31mb\u{7f}"), r"a\x0a\x09\x1b[31mb\x7f");
        assert_eq!(escaped("\u{9b}2J \u{202e}cba\u{2066}\u{2028}"), r"\x9b2J \u202ecba\u2066\u2028");
        assert_eq!(into_escaped("a\r".to_owned()), r"a\x0d");
    }

    #[test]
    fn names_stay_as_they_are() {
        for name in ["", "std::vector<int>::~vector()", r"C:\x1b", "größe", "名前", "e\u{301}"] {
            assert!(matches!(escaped(name), Cow::Borrowed(same) if same == name));
        }
    }
}
