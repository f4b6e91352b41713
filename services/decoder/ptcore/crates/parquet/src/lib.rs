//! Columns of numbers as Parquet files (<https://parquet.apache.org/docs/file-format/>): written only, and only with what
//! the tables need.
//!
//! Writers for everything look every value up in a hash table and pack bits. Here whoever has the rows knows what they
//! are: numbers that grow, runs, or numbers of which there are few. Widths are whole bytes: that is quick to write, and
//! zstd finds what repeats, which it does not in bits. Only numbers that zstd makes little of are in bits, and not packed.
//!
//! A row group has one page for each column. Columns may be null in the schema, as those of Delta tables are; no value is.

mod chunk;
mod deltas;
mod file;
mod flags;
mod indices;
mod kind;
mod numbers;
mod runs;
mod thrift;

pub use chunk::{Chunk, Dictionary, Packer};
pub use deltas::{Deltas, Ways};
pub use file::{Column, File};
pub use flags::flags;
pub use indices::indices;
pub use kind::Kind;
pub use numbers::Numbers;
pub use runs::Runs;
