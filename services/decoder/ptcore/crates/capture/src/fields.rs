//! Numbers and text at offsets of untrusted bytes, little-endian.

/// Reads one field after another.
#[derive(Clone, Copy)]
pub struct Fields<'d> {
    data: &'d [u8],
    at: usize,
}

/// What is missing where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Short {
    /// Offset in the data of `Fields`.
    pub at: usize,
    pub wanted: u64,
    pub there: usize,
}

impl std::fmt::Display for Short {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes are wanted, {} are there", self.wanted, self.there)
    }
}

impl<'d> Fields<'d> {
    pub fn new(data: &'d [u8], at: usize) -> Self {
        Fields { data, at: at.min(data.len()) }
    }

    pub fn at(&self) -> usize {
        self.at
    }

    pub fn left(&self) -> usize {
        self.data.len() - self.at
    }

    pub fn bytes(&mut self, count: u64) -> Result<&'d [u8], Short> {
        let there = self.left();
        match usize::try_from(count) {
            Ok(count) if count <= there => {
                let bytes = &self.data[self.at..self.at + count];
                self.at += count;
                Ok(bytes)
            }
            _ => Err(Short { at: self.at, wanted: count, there }),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Short> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(N as u64)?);
        Ok(array)
    }

    pub fn u16(&mut self) -> Result<u16, Short> {
        self.array().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Result<u32, Short> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Result<u64, Short> {
        self.array().map(u64::from_le_bytes)
    }

    /// The text up to the first zero byte of the rest, or the whole rest.
    pub fn text(&mut self) -> String {
        String::from_utf8_lossy(self.text_bytes()).into_owned()
    }

    pub fn text_bytes(&mut self) -> &'d [u8] {
        let rest = &self.data[self.at..];
        let length = rest.iter().position(|&byte| byte == 0).unwrap_or(rest.len());
        self.at += (length + 1).min(rest.len());
        &rest[..length]
    }
}
