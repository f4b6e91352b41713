//! Descriptions in JSON, whose errors name the place.

use crate::CaptureError;
use serde_json::Value;
use std::path::Path;

pub fn parse(path: &Path, text: &[u8]) -> Result<Value, CaptureError> {
    serde_json::from_slice(text).map_err(|error| CaptureError::Json {
        path: path.to_owned(),
        place: format!("line {} column {}", error.line(), error.column()),
        what: error.to_string(),
    })
}

/// A value and where it stands.
#[derive(Clone)]
pub struct Node<'j> {
    path: &'j Path,
    place: String,
    value: &'j Value,
}

impl<'j> Node<'j> {
    pub fn root(path: &'j Path, value: &'j Value) -> Self {
        Node { path, place: String::new(), value }
    }

    pub fn error(&self, what: impl Into<String>) -> CaptureError {
        let place = if self.place.is_empty() { "the whole" } else { &self.place };
        CaptureError::Json { path: self.path.to_owned(), place: place.to_owned(), what: what.into() }
    }

    fn wanted(&self, what: &str) -> CaptureError {
        let mut given = self.value.to_string();
        if given.len() > 60 {
            let end = (0..=60).rev().find(|&end| given.is_char_boundary(end)).unwrap_or(0);
            given.truncate(end);
            given.push_str("...");
        }
        self.error(format!("{what} is wanted, not {given}"))
    }

    /// The member, if there is one; an error when this is no object.
    pub fn find(&self, name: &str) -> Result<Option<Node<'j>>, CaptureError> {
        let object = self.value.as_object().ok_or_else(|| self.wanted("an object"))?;
        let place = if self.place.is_empty() { name.to_owned() } else { format!("{}.{name}", self.place) };
        let found = object.get(name).filter(|value| !value.is_null());
        Ok(found.map(|value| Node { path: self.path, place, value }))
    }

    pub fn get(&self, name: &str) -> Result<Node<'j>, CaptureError> {
        self.find(name)?.ok_or_else(|| self.error(format!("it has no `{name}`")))
    }

    /// The elements of an array member; none when it is absent.
    pub fn elements(&self, name: &str) -> Result<Vec<Node<'j>>, CaptureError> {
        let Some(node) = self.find(name)? else { return Ok(Vec::new()) };
        let array = node.value.as_array().ok_or_else(|| node.wanted("an array"))?;
        let element = |(number, value)| Node { path: self.path, place: format!("{}[{number}]", node.place), value };
        Ok(array.iter().enumerate().map(element).collect())
    }

    /// An array of so many numbers.
    pub fn numbers<const N: usize>(&self) -> Result<[u64; N], CaptureError> {
        let listed = self.value.as_array().into_iter().flatten().map(Value::as_u64);
        let numbers: Option<Vec<u64>> = listed.collect();
        let numbers = numbers.and_then(|numbers| numbers.try_into().ok());
        numbers.ok_or_else(|| self.wanted(&format!("an array of {N} numbers")))
    }

    pub fn text(&self) -> Result<&'j str, CaptureError> {
        self.value.as_str().ok_or_else(|| self.wanted("a text"))
    }

    pub fn truth(&self) -> Result<bool, CaptureError> {
        self.value.as_bool().ok_or_else(|| self.wanted("true or false"))
    }

    pub fn integer(&self, below: u64) -> Result<u64, CaptureError> {
        let number = self.value.as_u64().ok_or_else(|| self.wanted("a whole number"))?;
        if number >= below {
            return Err(self.wanted(&format!("a number below {below}")));
        }
        Ok(number)
    }

    /// A number of up to 64 bits, which not every writer of JSON can write as one: also as text, decimal or with 0x.
    pub fn address(&self) -> Result<u64, CaptureError> {
        let number = self.value.as_u64().or_else(|| self.value.as_str().and_then(crate::options::number));
        number.ok_or_else(|| self.wanted("a number, or a text that holds one"))
    }
}
