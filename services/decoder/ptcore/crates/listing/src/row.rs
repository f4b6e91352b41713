//! One line: named values, as text or as a JSON object.

use crate::{escaped, Form};
use std::fmt::Write;

/// A value by how it is shown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'v> {
    /// Addresses and bit patterns: `"0x1f"` in JSON, so that no reader rounds them.
    Hex(u64),
    Number(u64),
    Word(&'v str),
    Words(&'v [String]),
    /// Text shows the name when it is true.
    Flag(bool),
    Unknown,
}

impl Value<'_> {
    /// An address that is not 0: no other one is known.
    pub fn address(known: u64) -> Self {
        if known == 0 {
            Value::Unknown
        } else {
            Value::Hex(known)
        }
    }

    /// A time that is not 0: no other one is known.
    pub fn time(known: u64) -> Self {
        if known == 0 {
            Value::Unknown
        } else {
            Value::Number(known)
        }
    }
}

/// Writes the values of one line. Text is for lines of free form: `name value, name value`; an empty name leaves the
/// value alone.
pub struct Row<'l> {
    form: Form,
    line: &'l mut String,
    first: bool,
}

impl<'l> Row<'l> {
    pub fn new(form: Form, line: &'l mut String) -> Self {
        if form == Form::Json {
            line.push('{');
        }
        Row { form, line, first: true }
    }

    /// `shown` is the name in text.
    pub fn put(&mut self, name: &str, shown: &str, value: Value<'_>) -> &mut Self {
        match self.form {
            Form::Json => {
                if !std::mem::take(&mut self.first) {
                    self.line.push(',');
                }
                self.line.push('"');
                self.line.push_str(name);
                self.line.push_str("\":");
                json(self.line, value);
            }
            Form::Text => text(self.line, &mut self.first, shown, value),
        }
        self
    }

    /// Where in a stream: a number to programs, as all sizes are, and to people as bytes are counted beside a dump.
    pub fn put_offset(&mut self, offset: usize) -> &mut Self {
        let offset = offset as u64;
        let value = if self.form == Form::Json { Value::Number(offset) } else { Value::Hex(offset) };
        self.put("offset", "at offset", value)
    }

    /// Only JSON has it.
    pub fn more(&mut self, name: &str, value: Value<'_>) -> &mut Self {
        if self.form == Form::Json {
            self.put(name, "", value);
        }
        self
    }

    pub fn end(self) {
        if self.form == Form::Json {
            self.line.push('}');
        }
    }
}

fn json(line: &mut String, value: Value<'_>) {
    let _ = match value {
        Value::Hex(number) => write!(line, "\"{number:#x}\""),
        Value::Number(number) => write!(line, "{number}"),
        Value::Flag(flag) => write!(line, "{flag}"),
        Value::Word(word) => {
            quote(line, word);
            Ok(())
        }
        Value::Words(words) => {
            let mut separator = '[';
            for word in words {
                line.push(separator);
                quote(line, word);
                separator = ',';
            }
            line.push_str(if words.is_empty() { "[]" } else { "]" });
            Ok(())
        }
        Value::Unknown => write!(line, "null"),
    };
}

fn text(line: &mut String, first: &mut bool, shown: &str, value: Value<'_>) {
    if matches!(value, Value::Flag(false) | Value::Unknown) {
        return;
    }
    if !std::mem::take(first) {
        line.push(' ');
    }
    line.push_str(shown);
    if value == Value::Flag(true) {
        return;
    }
    if !shown.is_empty() {
        line.push(' ');
    }
    let _ = match value {
        Value::Hex(number) => write!(line, "{number:#x}"),
        Value::Number(number) => write!(line, "{number}"),
        Value::Word(word) => line.write_str(&escaped(word)),
        Value::Words(words) => line.write_str(&escaped(&words.join(" > "))),
        Value::Flag(_) | Value::Unknown => Ok(()),
    };
}

/// A JSON string (RFC 8259, section 7).
fn quote(line: &mut String, word: &str) {
    line.push('"');
    for letter in word.chars() {
        match letter {
            '"' => line.push_str("\\\""),
            '\\' => line.push_str("\\\\"),
            '\n' => line.push_str("\\n"),
            control if control < ' ' => {
                let _ = write!(line, "\\u{:04x}", u32::from(control));
            }
            other => line.push(other),
        }
    }
    line.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(form: Form) -> String {
        let mut line = String::new();
        let mut row = Row::new(form, &mut line);
        row.put("ip", "", Value::Hex(0x1f))
            .put("count", "count", Value::Number(3))
            .more("stream", Value::Word("a\"\n\u{1}"));
        row.put("taken", "taken", Value::Flag(true)).put("aborted", "aborted", Value::Flag(false));
        row.put("cr3", "cr3", Value::Unknown);
        row.end();
        line
    }

    #[test]
    fn people_see_what_is_there() {
        assert_eq!(row(Form::Text), "0x1f count 3 taken");
    }

    #[test]
    fn a_line_stays_one_line_whatever_the_recording_says() {
        let mut line = String::new();
        let mut row = Row::new(Form::Text, &mut line);
        row.put("reason", "because", Value::Word("a\n\u{1b}[2Jb")).put("in", "in", Value::Words(&["c\r".to_owned()]));
        row.end();
        assert_eq!(line, r"because a\x0a\x1b[2Jb in c\x0d");
    }

    #[test]
    fn programs_see_everything() {
        let expected = r#"{"ip":"0x1f","count":3,"stream":"a\"\n\u0001","taken":true,"aborted":false,"cr3":null}"#;
        assert_eq!(row(Form::Json), expected);
    }
}
