//! Where the lines go.

use crate::escaped;
use std::any::Any;
use std::panic::resume_unwind;

/// Text has columns and is for people; JSON is one object a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Text,
    Json,
}

/// Bytes that are handed on at once.
const BATCH: usize = 1 << 16;

/// Lines on their way to whoever asked for them.
pub struct Lines<'o> {
    pub form: Form,
    held: String,
    deliver: Box<dyn FnMut(String) -> bool + 'o>,
}

/// What unwinds out of a listing that nobody reads on.
struct Stopped;

impl<'o> Lines<'o> {
    /// `deliver` takes whole lines and says whether more are wanted. When it does not want more, the listing ends by
    /// unwinding with what [`stopped`] recognises: neither a decode nor its sinks have another way out.
    pub fn new(form: Form, deliver: impl FnMut(String) -> bool + 'o) -> Self {
        Lines { form, held: String::new(), deliver: Box::new(deliver) }
    }

    /// Where the next line is written. It ends with [`Lines::end`].
    #[inline]
    pub fn begin(&mut self) -> &mut String {
        &mut self.held
    }

    #[inline]
    pub fn end(&mut self) {
        self.held.push('\n');
        if self.held.len() >= BATCH {
            self.flush();
        }
    }

    /// A line that says what the next ones are about. JSON has it in each object.
    pub fn title(&mut self, text: &str) {
        if self.form == Form::Text {
            self.held.push_str("# ");
            self.held.push_str(&escaped(text));
            self.end();
        }
    }

    /// Whole lines that were written elsewhere.
    pub fn pass_on(&mut self, whole: String) {
        if self.held.len() + whole.len() < BATCH {
            self.held.push_str(&whole);
            return;
        }
        self.flush();
        if !(self.deliver)(whole) {
            stop();
        }
    }

    /// Hands on what is held. The last lines need it.
    #[cold]
    pub fn flush(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let full = std::mem::replace(&mut self.held, String::with_capacity(BATCH + BATCH / 8));
        if !(self.deliver)(full) {
            stop();
        }
    }
}

/// Ends whatever runs here by unwinding with what [`stopped`] recognises; nothing is printed.
pub fn stop() -> ! {
    resume_unwind(Box::new(Stopped))
}

/// Whether the payload of an unwinding says that nobody wanted more lines.
pub fn stopped(payload: &(dyn Any + Send)) -> bool {
    payload.is::<Stopped>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{catch_unwind, AssertUnwindSafe};

    #[test]
    fn lines_are_handed_on_whole_and_in_order() {
        let mut told = Vec::new();
        let mut lines = Lines::new(Form::Text, |batch| {
            told.push(batch);
            true
        });
        for number in 0..50_000 {
            lines.begin().push_str(&number.to_string());
            lines.end();
        }
        lines.flush();
        drop(lines);
        assert!(told.len() > 2);
        assert!(told.iter().all(|batch| batch.ends_with('\n') && batch.len() < BATCH + 16));
        let numbers: Vec<usize> = told.concat().lines().map(|line| line.parse().unwrap()).collect();
        assert_eq!(numbers, (0..50_000).collect::<Vec<_>>());
    }

    #[test]
    fn a_title_is_one_line() {
        let mut told = String::new();
        let mut lines = Lines::new(Form::Text, |batch| {
            told.push_str(&batch);
            true
        });
        lines.title("stream\n\u{1b}c");
        lines.flush();
        drop(lines);
        assert_eq!(told, "# stream\\x0a\\x1bc\n");
    }

    #[test]
    fn a_reader_that_has_seen_enough_ends_the_listing() {
        let mut batches = 0;
        let payload = catch_unwind(AssertUnwindSafe(|| {
            let mut lines = Lines::new(Form::Text, |_| {
                batches += 1;
                batches < 2
            });
            loop {
                lines.begin().push_str("a line");
                lines.end();
            }
        }))
        .unwrap_err();
        assert!(stopped(&*payload));
        assert_eq!(batches, 2);
    }
}
