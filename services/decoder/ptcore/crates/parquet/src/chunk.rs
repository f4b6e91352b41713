//! A column of one row group: its dictionary page, where it has one, and its data page, packed.

use crate::deltas::{Deltas, Ways};
use crate::kind::Kind;
use crate::numbers::Numbers;
use crate::thrift::{varint, Struct};
use std::io;
use std::rc::Rc;

const DATA_PAGE: i32 = 0;
const DICTIONARY_PAGE: i32 = 2;

/// How the values of a page are written (Parquet format, "Encodings").
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    Plain = 0,
    Rle = 3,
    DeltaBinaryPacked = 5,
    RleDictionary = 8,
}

/// How the pages of a chunk are packed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Codec {
    None = 0,
    Zstd = 6,
}

struct Page {
    bytes: usize,
    packed: Vec<u8>,
}

/// The values that places stand for.
pub enum Dictionary<'t> {
    Int32(&'t [i32]),
    /// As bits.
    Int64(&'t [u64]),
    Text(&'t [&'t str]),
}

/// The pages of one column in one row group, encoded and packed.
pub struct Chunk {
    codec: Codec,
    encoding: Encoding,
    dictionary: Option<(usize, Page)>,
    /// Columns with the same places share it.
    data: Rc<Page>,
}

/// Where a chunk was put, and how large it is.
pub(crate) struct Placed {
    pub codec: Codec,
    pub encodings: Vec<i32>,
    pub dictionary_at: Option<usize>,
    pub data_at: usize,
    pub bytes: usize,
    pub packed: usize,
}

/// So much of a column tells what zstd makes of it.
const SAMPLE: usize = 1 << 14;
/// The highest level that zstd is compiled for here (`.cargo/config.toml`).
const MAX_LEVEL: i32 = 3;

/// Packs pages with zstd, where that makes them smaller.
pub struct Packer {
    zstd: zstd::bulk::Compressor<'static>,
    values: Vec<u8>,
}

impl Packer {
    /// Fails for a level above 3.
    pub fn new(level: i32) -> io::Result<Packer> {
        if level > MAX_LEVEL {
            let why = format!("zstd is compiled for levels up to {MAX_LEVEL}, not for {level}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        Ok(Packer { zstd: zstd::bulk::Compressor::new(level)?, values: Vec::new() })
    }

    /// Numbers as `Deltas` encodes them.
    pub fn deltas(&mut self, rows: usize, encode: impl FnOnce(&mut Vec<u8>)) -> io::Result<Chunk> {
        Ok(Chunk::of(Encoding::DeltaBinaryPacked, self.page(rows, encode)?))
    }

    /// Numbers of which it is chosen how they are encoded.
    pub fn shorter_deltas(&mut self, rows: usize, deltas: &mut Deltas) -> io::Result<Chunk> {
        deltas.pack();
        self.choose(deltas)?;
        if deltas.ways() != Ways::Bits {
            return self.deltas(rows, |out| deltas.finish(out));
        }
        self.fill(rows, |out| deltas.finish(out));
        let packed = std::mem::take(&mut self.values);
        let data = Rc::new(Page { bytes: packed.len(), packed });
        Ok(Chunk { codec: Codec::None, ..Chunk::of(Encoding::DeltaBinaryPacked, data) })
    }

    /// Chooses as soon as there is enough to tell by: what is not encoded both ways takes half of the time.
    pub fn choose_early(&mut self, deltas: &mut Deltas) -> io::Result<()> {
        if deltas.blocks().0.len() < 2 * SAMPLE {
            return Ok(());
        }
        self.choose(deltas)
    }

    /// Bits, unless zstd makes much less of bytes.
    fn choose(&mut self, deltas: &mut Deltas) -> io::Result<()> {
        if deltas.ways() != Ways::Both {
            return Ok(());
        }
        let (bytes, bits) = deltas.blocks();
        let sample = &bytes[bytes.len().saturating_sub(SAMPLE) / 2..];
        let sample = &sample[..sample.len().min(SAMPLE)];
        let packed = self.zstd.compress(sample)?.len();
        let much_less = packed * bytes.len() * 4 < bits.len() * sample.len() * 3;
        deltas.keep(if much_less { Ways::Bytes } else { Ways::Bits });
        Ok(())
    }

    /// Numbers as their bytes, lowest first; booleans as `flags` encodes them.
    pub fn plain(&mut self, rows: usize, encode: impl FnOnce(&mut Vec<u8>)) -> io::Result<Chunk> {
        Ok(Chunk::of(Encoding::Plain, self.page(rows, encode)?))
    }

    /// Places in a dictionary.
    pub fn places(
        &mut self,
        rows: usize,
        dictionary: &Dictionary<'_>,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> io::Result<Chunk> {
        let data = self.page(rows, encode)?;
        Ok(Chunk { dictionary: Some(self.dictionary(dictionary)?), ..Chunk::of(Encoding::RleDictionary, data) })
    }

    /// The same places in another dictionary.
    pub fn same_places(&mut self, other: &Chunk, dictionary: &Dictionary<'_>) -> io::Result<Chunk> {
        let dictionary = Some(self.dictionary(dictionary)?);
        Ok(Chunk { dictionary, ..Chunk::of(Encoding::RleDictionary, Rc::clone(&other.data)) })
    }

    /// Places in a dictionary of numbers, or the numbers themselves where there are too many. `kind`: as they are stored.
    pub fn numbers(&mut self, rows: usize, numbers: &mut Numbers, kind: Kind) -> io::Result<Chunk> {
        let mut different = None;
        let data = self.page(rows, |out| different = numbers.finish(out))?;
        let Some(different) = different else { return Ok(Chunk::of(Encoding::DeltaBinaryPacked, data)) };
        let dictionary = if kind == Kind::Int64 {
            self.dictionary(&Dictionary::Int64(&different))?
        } else {
            let narrow: Vec<_> = different.into_iter().map(|number| number as i32).collect();
            self.dictionary(&Dictionary::Int32(&narrow))?
        };
        Ok(Chunk { dictionary: Some(dictionary), ..Chunk::of(Encoding::RleDictionary, data) })
    }

    fn page(&mut self, rows: usize, encode: impl FnOnce(&mut Vec<u8>)) -> io::Result<Rc<Page>> {
        self.fill(rows, encode);
        Ok(Rc::new(self.pack()?))
    }

    fn fill(&mut self, rows: usize, encode: impl FnOnce(&mut Vec<u8>)) {
        self.values.clear();
        // None is null: one run of ones.
        let mut present = Vec::new();
        varint(&mut present, (rows as u64) << 1);
        present.push(1);
        self.values.extend_from_slice(&(present.len() as u32).to_le_bytes());
        self.values.extend_from_slice(&present);
        encode(&mut self.values);
    }

    fn dictionary(&mut self, dictionary: &Dictionary<'_>) -> io::Result<(usize, Page)> {
        self.values.clear();
        let count = match dictionary {
            Dictionary::Int32(numbers) => {
                self.values.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
                numbers.len()
            }
            Dictionary::Int64(numbers) => {
                self.values.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
                numbers.len()
            }
            Dictionary::Text(texts) => {
                for text in *texts {
                    self.values.extend_from_slice(&(text.len() as u32).to_le_bytes());
                    self.values.extend_from_slice(text.as_bytes());
                }
                texts.len()
            }
        };
        Ok((count, self.pack()?))
    }

    fn pack(&mut self) -> io::Result<Page> {
        Ok(Page { bytes: self.values.len(), packed: self.zstd.compress(&self.values)? })
    }
}

impl Chunk {
    fn of(encoding: Encoding, data: Rc<Page>) -> Chunk {
        Chunk { codec: Codec::Zstd, encoding, dictionary: None, data }
    }

    /// Bytes in the file, about.
    pub(crate) fn packed(&self) -> usize {
        const HEADS: usize = 64;
        HEADS + self.data.packed.len() + self.dictionary.as_ref().map_or(0, |(_, page)| page.packed.len())
    }

    /// `at`: where `out` begins in the file.
    pub(crate) fn put(&self, rows: usize, at: usize, out: &mut Vec<u8>) -> Placed {
        let begin = out.len();
        let mut encodings = vec![self.encoding as i32, Encoding::Rle as i32];
        let (mut bytes, mut dictionary_at) = (0, None);
        if let Some((count, page)) = &self.dictionary {
            dictionary_at = Some(at + out.len());
            encodings.push(Encoding::Plain as i32);
            bytes += put_page(out, page, DICTIONARY_PAGE, |head| {
                head.structure(7, |head| head.i32(1, *count as i32).i32(2, Encoding::Plain as i32).end())
            });
        }
        let data_at = at + out.len();
        bytes += put_page(out, &self.data, DATA_PAGE, |head| {
            head.structure(5, |head| {
                let rle = Encoding::Rle as i32;
                head.i32(1, rows as i32).i32(2, self.encoding as i32).i32(3, rle).i32(4, rle).end();
            })
        });
        Placed { codec: self.codec, encodings, dictionary_at, data_at, bytes, packed: out.len() - begin }
    }
}

/// Returns the bytes that it has when it is unpacked, with its head.
fn put_page(out: &mut Vec<u8>, page: &Page, kind: i32, fill: impl FnOnce(Struct<'_>) -> Struct<'_>) -> usize {
    let begin = out.len();
    let head = Struct::begin(out).i32(1, kind).i32(2, page.bytes as i32).i32(3, page.packed.len() as i32);
    fill(head).end();
    let head_bytes = out.len() - begin;
    out.extend_from_slice(&page.packed);
    head_bytes + page.bytes
}
