//! Debug information that is read a few times over at most: what reads it keeps a table for whatever refers to one, and
//! thousands of units may refer to the same.

use gimli::{EndianSlice, Error, LittleEndian, Reader, ReaderOffsetId};
use std::borrow::Cow;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// How often all of a section is read: each table once to find units and functions, and strings that stand in it.
const MOST_READ: u64 = 16;
/// A path is copied for each file of each unit, of which the line table says a folder's number and a name.
const MOST_COPIED: u64 = 64;
/// Sections may be small.
const AT_LEAST: u64 = 1 << 24;

/// A tree of inlined functions is read by recursion, half a kilobyte a level: of the 2 MiB that threads have.
const MOST_STACK: usize = 1 << 20;

thread_local! {
    /// The lowest address that the stack may reach while it is read.
    static STACK_END: Cell<usize> = const { Cell::new(0) };
}

/// Reads, and fails where that leads too deep.
pub fn on_little_stack<T>(read: impl FnOnce() -> T) -> T {
    let here = 0u8;
    STACK_END.set(std::ptr::from_ref(&here).addr().saturating_sub(MOST_STACK));
    let read = read();
    STACK_END.set(0);
    read
}

/// How many bytes may still be read.
pub fn readings(section: &[u8]) -> AtomicU64 {
    AtomicU64::new(AT_LEAST + MOST_READ * section.len() as u64)
}

/// How many bytes of paths may still be copied.
#[derive(Debug)]
pub struct Copies(AtomicU64);

impl Default for Copies {
    fn default() -> Self {
        Copies(AtomicU64::new(AT_LEAST))
    }
}

impl Copies {
    /// There is another line table.
    pub fn add(&self, lines: &[u8]) {
        self.0.fetch_add(MOST_COPIED * lines.len() as u64, Ordering::Relaxed);
    }
}

/// A part of a section.
#[derive(Clone, Copy, Debug, Default)]
pub struct Metered<'f> {
    slice: EndianSlice<'f, LittleEndian>,
    /// Of the section; without a limit where nothing is kept of what is read.
    readings: Option<&'f AtomicU64>,
    copies: Option<&'f Copies>,
}

impl<'f> Metered<'f> {
    pub fn new(bytes: &'f [u8], readings: Option<&'f AtomicU64>, copies: &'f Copies) -> Self {
        Metered { slice: EndianSlice::new(bytes, LittleEndian), readings, copies: Some(copies) }
    }

    pub fn bytes(&self) -> &'f [u8] {
        self.slice.slice()
    }

    fn reads(&self, size: usize) -> gimli::Result<()> {
        if std::ptr::from_ref(&size).addr() < STACK_END.get() {
            return Err(Error::UnexpectedEof(self.offset_id()));
        }
        self.takes(self.readings, size)
    }

    fn takes(&self, room: Option<&AtomicU64>, size: usize) -> gimli::Result<()> {
        let Some(room) = room else { return Ok(()) };
        let left = room.load(Ordering::Relaxed).checked_sub(size as u64);
        room.store(left.unwrap_or(0), Ordering::Relaxed);
        left.map(drop).ok_or_else(|| Error::UnexpectedEof(self.offset_id()))
    }
}

impl Reader for Metered<'_> {
    type Endian = LittleEndian;
    type Offset = usize;

    #[inline]
    fn endian(&self) -> LittleEndian {
        LittleEndian
    }

    #[inline]
    fn len(&self) -> usize {
        Reader::len(&self.slice)
    }

    #[inline]
    fn empty(&mut self) {
        self.slice.empty();
    }

    #[inline]
    fn truncate(&mut self, len: usize) -> gimli::Result<()> {
        self.slice.truncate(len)
    }

    #[inline]
    fn offset_from(&self, base: &Self) -> usize {
        Reader::offset_from(&self.slice, &base.slice)
    }

    #[inline]
    fn offset_id(&self) -> ReaderOffsetId {
        self.slice.offset_id()
    }

    #[inline]
    fn lookup_offset_id(&self, id: ReaderOffsetId) -> Option<usize> {
        self.slice.lookup_offset_id(id)
    }

    #[inline]
    fn find(&self, byte: u8) -> gimli::Result<usize> {
        Reader::find(&self.slice, byte)
    }

    #[inline]
    fn skip(&mut self, len: usize) -> gimli::Result<()> {
        self.slice.skip(len)
    }

    #[inline]
    fn split(&mut self, len: usize) -> gimli::Result<Self> {
        self.reads(len)?;
        Ok(Metered { slice: self.slice.split(len)?, ..*self })
    }

    fn to_slice(&self) -> gimli::Result<Cow<'_, [u8]>> {
        self.slice.to_slice()
    }

    fn to_string(&self) -> gimli::Result<Cow<'_, str>> {
        Reader::to_string(&self.slice)
    }

    /// Paths are copied by way of this.
    fn to_string_lossy(&self) -> gimli::Result<Cow<'_, str>> {
        self.takes(self.copies.map(|copies| &copies.0), self.slice.slice().len())?;
        Reader::to_string_lossy(&self.slice)
    }

    #[inline]
    fn read_slice(&mut self, buffer: &mut [u8]) -> gimli::Result<()> {
        self.reads(buffer.len())?;
        Reader::read_slice(&mut self.slice, buffer)
    }

    #[inline]
    fn read_u8(&mut self) -> gimli::Result<u8> {
        self.reads(1)?;
        self.slice.read_u8()
    }
}
