//! Identifiers: words of earlier ones within them, operators, and names of what is local.

use super::machine::{Machine, Node};
use crate::name::MAX_NAME;

const MAX_WORDS: usize = 26;

impl Machine<'_> {
    /// Letters, or after a `0` words of earlier identifiers with letters between them.
    pub(super) fn identifier(&mut self) -> Option<String> {
        let substitutes = self.next_if(b'0');
        let punycode = substitutes && self.next_if(b'0');
        if punycode {
            return None;
        }
        let mut more = substitutes;
        let mut name = String::new();
        loop {
            while more && self.rest.first().is_some_and(u8::is_ascii_alphabetic) {
                let letter = self.next()?;
                more = letter.is_ascii_lowercase();
                name += self.words.get(usize::from(letter.to_ascii_lowercase() - b'a'))?;
                (name.len() <= MAX_NAME).then_some(())?;
            }
            if self.next_if(b'0') {
                break;
            }
            let length = self.natural()?;
            let (text, rest) = self.rest.split_at_checked(length)?;
            self.rest = rest;
            let text = std::str::from_utf8(text).ok()?;
            self.learn(text);
            name += text;
            if !more {
                break;
            }
        }
        (!name.is_empty()).then_some(name)
    }

    /// Words begin with an upper-case letter or behind what is no letter, and have two letters or more.
    fn learn(&mut self, text: &str) {
        let bytes = text.as_bytes();
        let mut start = None;
        for at in 0..=bytes.len() {
            let byte = bytes.get(at).copied().unwrap_or(0);
            let before = at.checked_sub(1).map_or(0, |before| bytes[before]);
            if let Some(begin) = start {
                let ends = byte == b'_' || byte == 0 || (!before.is_ascii_uppercase() && byte.is_ascii_uppercase());
                if ends {
                    if at - begin >= 2 && self.words.len() < MAX_WORDS {
                        self.words.push(text[begin..at].to_owned());
                    }
                    start = None;
                }
            }
            if start.is_none() && byte != 0 && byte != b'_' && !byte.is_ascii_digit() {
                start = Some(at);
            }
        }
    }

    pub(super) fn local(&mut self) -> Option<()> {
        if self.next_if(b'L') {
            self.pop_identifier()?;
            let name = self.pop_identifier()?;
            return self.push(Node::Identifier(name));
        }
        let index = self.index()?;
        let name = self.pop_identifier()?;
        self.push(Node::Identifier(format!("{name} #{}", index + 1)))
    }

    pub(super) fn operator(&mut self) -> Option<()> {
        let name = self.pop_identifier()?;
        matches!(self.next()?, b'i' | b'p' | b'P').then_some(())?;
        let letter = |byte: u8| OPERATORS.as_bytes().get(usize::from(byte.checked_sub(b'a')?)).copied();
        let name = name.bytes().map(|byte| letter(byte).filter(|&byte| byte != b' ').map(char::from));
        let name = name.collect::<Option<String>>()?;
        self.push(Node::Identifier(name))
    }
}

/// Operators' characters by letter.
const OPERATORS: &str = "& @/= >    <*!|+?%-~   ^ .";
