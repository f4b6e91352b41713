//! The tests of the crate, as one program: compiled and linked once.

mod assembly;
mod debug_info;
mod go;
mod hostile;
mod landing;
mod mutations;
mod parts;
mod patched;
mod segments;
mod start;
mod stripped;
mod stubs;
mod support;
mod text_relocations;
