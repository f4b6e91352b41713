//! Where programs begin.

use pt_image::{Binary, Image, Role, Search, Symbols};
use std::path::Path;
use std::sync::Arc;

/// The loader of programs, of which the entry has no name in most distributions.
const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";

#[test]
fn the_entry_of_a_file_is_where_a_program_begins() {
    let binary = Binary::load(&std::env::current_exe().unwrap(), &Search::default()).unwrap();
    let starts: Vec<_> = binary.functions().iter().filter(|function| function.role == Role::Start).collect();
    assert_eq!(starts.len(), 1);
    assert_eq!(binary.name(starts[0]).as_deref(), Some("_start"));
}

#[test]
fn it_is_whether_a_function_is_known_there_or_not() {
    let Ok(bytes) = std::fs::read(LOADER) else { return eprintln!("skipped: there is no {LOADER}") };
    let binary = Arc::new(Binary::load(Path::new(LOADER), &Search::default()).unwrap());
    let (mut image, address) = (Image::new(), 0x7f00_0000_0000);
    image.map(0, address, bytes.len() as u64, 0, &binary, LOADER).unwrap();
    let entry = u64::from_le_bytes(bytes[24..32].try_into().unwrap());
    assert_eq!(image.place(0, address + entry).role, Role::Start);
}
