//! A Parquet file while it is written: what comes next, and the footer.

use crate::chunk::{Chunk, Placed};
use crate::kind::Kind;
use crate::thrift::Struct;

const MAGIC: &[u8; 4] = b"PAR1";
/// What readers take for format 2.6, as other writers tell it.
const VERSION: i32 = 2;
const OPTIONAL: i32 = 1;
const UTF8: i32 = 0;

pub type Column<'n> = (&'n str, Kind);

struct Group {
    rows: usize,
    columns: Vec<Placed>,
}

/// Knows where everything was put; the bytes go to whoever writes them.
pub struct File {
    columns: Vec<(String, Kind)>,
    groups: Vec<Group>,
    bytes: usize,
}

impl File {
    pub fn new(columns: &[Column<'_>]) -> File {
        let columns = columns.iter().map(|&(name, kind)| (name.to_owned(), kind)).collect();
        File { columns, groups: Vec::new(), bytes: 0 }
    }

    pub fn rows(&self) -> usize {
        self.groups.iter().map(|group| group.rows).sum()
    }

    /// The bytes of a row group: one chunk for each column.
    pub fn group(&mut self, rows: usize, chunks: &[Chunk]) -> Vec<u8> {
        assert_eq!(chunks.len(), self.columns.len(), "a chunk for each column");
        let mut out = self.begin();
        out.reserve(chunks.iter().map(Chunk::packed).sum());
        let columns = chunks.iter().map(|chunk| chunk.put(rows, self.bytes, &mut out)).collect();
        self.groups.push(Group { rows, columns });
        self.bytes += out.len();
        out
    }

    /// The last bytes. `told`: keys and values for readers who look for them.
    pub fn finish(&mut self, told: &[(&str, &str)]) -> Vec<u8> {
        let mut out = self.begin();
        let begin = out.len();
        self.footer(Struct::begin(&mut out), told);
        let length = (out.len() - begin) as u32;
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(MAGIC);
        self.bytes += out.len();
        out
    }

    fn begin(&self) -> Vec<u8> {
        if self.bytes == 0 {
            MAGIC.to_vec()
        } else {
            Vec::new()
        }
    }

    fn footer(&self, footer: Struct<'_>, told: &[(&str, &str)]) {
        // The root of the schema, then its children.
        let elements: Vec<_> = std::iter::once(None).chain(self.columns.iter().map(Some)).collect();
        let footer = footer
            .i32(1, VERSION)
            .structures(2, &elements, |column, element| match column {
                None => element.text(4, "schema").i32(5, self.columns.len() as i32).end(),
                Some(&(ref name, kind)) => {
                    let element = element.i32(1, kind as i32).i32(3, OPTIONAL).text(4, name);
                    if kind == Kind::Text {
                        // The union of logical types has texts as its first.
                        let text = |kind: Struct<'_>| kind.structure(1, |text| text.end()).end();
                        element.i32(6, UTF8).structure(10, text).end();
                    } else {
                        element.end();
                    }
                }
            })
            .i64(3, self.rows())
            .structures(4, &self.groups, |group, entry| {
                let bytes = group.columns.iter().map(|column| column.bytes).sum();
                let columns: Vec<_> = self.columns.iter().zip(&group.columns).collect();
                entry
                    .structures(1, &columns, |&(&(ref name, kind), placed), entry| {
                        let entry = entry.i64(2, 0);
                        entry.structure(3, |meta| metadata(meta, name, kind, placed, group.rows)).end();
                    })
                    .i64(2, bytes)
                    .i64(3, group.rows)
                    .end();
            });
        let footer = match told {
            [] => footer,
            told => footer.structures(5, told, |&(key, value), entry| entry.text(1, key).text(2, value).end()),
        };
        footer.text(6, "permille").end();
    }
}

fn metadata(meta: Struct<'_>, name: &str, kind: Kind, placed: &Placed, rows: usize) {
    let meta = meta
        .i32(1, kind as i32)
        .i32s(2, &placed.encodings)
        .texts(3, &[name])
        .i32(4, placed.codec as i32)
        .i64(5, rows)
        .i64(6, placed.bytes)
        .i64(7, placed.packed)
        .i64(9, placed.data_at);
    match placed.dictionary_at {
        Some(at) => meta.i64(11, at).end(),
        None => meta.end(),
    }
}
