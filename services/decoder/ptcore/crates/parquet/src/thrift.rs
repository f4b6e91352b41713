//! Thrift's compact protocol, as far as Parquet's metadata need it
//! (<https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md>).

const I32: u8 = 5;
const I64: u8 = 6;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const STRUCT: u8 = 12;

pub fn varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

pub fn zigzag(out: &mut Vec<u8>, number: i64) {
    varint(out, ((number << 1) ^ (number >> 63)) as u64);
}

/// A struct while it is written; fields come in the order of their numbers.
pub struct Struct<'o> {
    out: &'o mut Vec<u8>,
    last: u8,
}

impl<'o> Struct<'o> {
    pub fn begin(out: &'o mut Vec<u8>) -> Self {
        Struct { out, last: 0 }
    }

    pub fn end(self) {
        self.out.push(0);
    }

    pub fn i32(mut self, field: u8, number: i32) -> Self {
        self.head(field, I32);
        zigzag(self.out, number.into());
        self
    }

    pub fn i64(mut self, field: u8, number: usize) -> Self {
        self.head(field, I64);
        zigzag(self.out, number as i64);
        self
    }

    pub fn text(mut self, field: u8, text: &str) -> Self {
        self.head(field, BINARY);
        text_of(self.out, text);
        self
    }

    pub fn structure(mut self, field: u8, fill: impl FnOnce(Struct<'_>)) -> Self {
        self.head(field, STRUCT);
        fill(Struct::begin(self.out));
        self
    }

    pub fn structures<T>(mut self, field: u8, all: &[T], mut fill: impl FnMut(&T, Struct<'_>)) -> Self {
        self.list(field, STRUCT, all.len());
        all.iter().for_each(|one| fill(one, Struct::begin(self.out)));
        self
    }

    pub fn i32s(mut self, field: u8, numbers: &[i32]) -> Self {
        self.list(field, I32, numbers.len());
        numbers.iter().for_each(|&number| zigzag(self.out, number.into()));
        self
    }

    pub fn texts(mut self, field: u8, texts: &[&str]) -> Self {
        self.list(field, BINARY, texts.len());
        texts.iter().for_each(|text| text_of(self.out, text));
        self
    }

    fn list(&mut self, field: u8, of: u8, length: usize) {
        self.head(field, LIST);
        match u8::try_from(length) {
            Ok(length @ 0..=14) => self.out.push(length << 4 | of),
            _ => {
                self.out.push(0xf0 | of);
                varint(self.out, length as u64);
            }
        }
    }

    fn head(&mut self, field: u8, kind: u8) {
        // Fields of Parquet are never so far apart that the number must be written out.
        self.out.push((field - self.last) << 4 | kind);
        self.last = field;
    }
}

fn text_of(out: &mut Vec<u8>, text: &str) {
    varint(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}
