//! Lines of a table.

use super::pattern::matches;
use std::fmt;

/// A line that is no rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableError {
    pub line: usize,
    pub text: String,
    pub reason: &'static str,
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {:?}: {}", self.line, self.text, self.reason)
    }
}

impl std::error::Error for TableError {}

pub struct Rule {
    pub category: String,
    pub function: String,
    pub binary: Option<String>,
}

impl Rule {
    pub fn fits(&self, function: &str, binary: &str) -> bool {
        matches(&self.function, function) && self.binary.as_ref().is_none_or(|pattern| matches(pattern, binary))
    }
}

pub fn rule(line: &str) -> Result<Rule, &'static str> {
    let (category, rest) = line.split_once(char::is_whitespace).ok_or("write `category  pattern [@ binary]`")?;
    let plain = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    if !category.chars().all(plain) {
        return Err("a category is a word of lower-case letters, digits and `-`");
    }
    let (function, binary) = match rest.rsplit_once(" @ ") {
        Some((function, binary)) => (function.trim(), Some(binary.trim().to_owned())),
        None => (rest.trim(), None),
    };
    // No word of a name begins or ends with it.
    if function.is_empty() || function.split_whitespace().any(|word| word.starts_with('@') || word.ends_with('@')) {
        return Err("write `category  pattern [@ binary]`, `*` for any name");
    }
    Ok(Rule { category: category.to_owned(), function: function.to_owned(), binary })
}
