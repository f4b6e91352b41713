//! The code that a process ran, by epoch, and the names of its functions.
//!
//! An [`Image`] is the address space of a process over its epochs: which bytes stood where, from files ([`Binary`]), or
//! written at run time. It answers what the flow layer asks ([`pt_flow::CodeMemory`]) and what the call layer asks
//! ([`Symbols`]). ELF files are taken as they come: whatever is damaged in them is left out.

mod absent;
mod binary;
mod bytes;
mod caches;
mod categories;
mod demangle;
mod dwarf;
mod elf_file;
mod flatten;
mod image;
mod labels;
mod landing;
mod metered;
mod name;
mod parts;
mod pclntab;
mod place;
mod plt;
mod room;
mod sections;
mod separate;
mod swift;
mod symbol_names;
mod symbols;
mod text_relocations;
mod unwind;
mod xz;

pub use absent::Absent;
pub use binary::{Binary, BinaryError, Function};
pub use bytes::Bytes;
pub use caches::Caches;
pub use categories::{Categories, TableError, OTHER};
pub use demangle::demangle;
pub use dwarf::Frame;
pub use elf_file::{elf, File as ElfFile};
pub use image::{Change, Description, Image, ImageError, Standing, MAX_EPOCH};
pub use name::{Role, MAX_NAME};
pub use place::{Place, Symbols};
pub use room::Room;
pub use separate::{hex, Search};
pub use symbol_names::SymbolNames;
pub use symbols::{Binding, Source};
pub use text_relocations::branch_opcode;
pub use xz::unpack as unpack_xz;
