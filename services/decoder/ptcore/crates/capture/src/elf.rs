//! Code of no file, with the names of its functions: as an ELF file that says so.

use pt_image::{Binary, Binding, Bytes, Search};
use std::path::Path;
use std::sync::Arc;

/// A function at its address in memory; 0 is a size that is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Function {
    pub address: u64,
    pub size: u64,
    pub name: String,
    pub binding: Binding,
}

const HEAD: usize = 64;
const PROGRAM: usize = 56;
const SECTION: usize = 64;
/// User code is below (Documentation/arch/x86/x86_64/mm.rst of Linux).
const USER_END: u64 = 1 << 47;
/// The section that functions are in that are in no section.
const NOWHERE: u16 = 0xfff1;

/// Parts of code at their addresses, with names, as an image takes them.
pub fn binary(name: &str, parts: &[(u64, &[u8])], functions: &[&Function]) -> Result<Arc<Binary>, String> {
    let file = Bytes::Owned(of_parts(parts, functions, code_at(parts.len()) as usize));
    Binary::of(Path::new(name), file, &Search::default()).map(Arc::new).map_err(|error| error.to_string())
}

/// Names alone, of code at their addresses: offsets are addresses, and none is in the file.
pub fn names(name: &str, functions: &[Function]) -> Result<Arc<Binary>, String> {
    let mut file = of_parts(&[(0, &[])], &functions.iter().collect::<Vec<_>>(), code_at(1) as usize);
    // p_offset, and p_filesz with p_memsz: all of user code.
    file[HEAD + 8..HEAD + 16].fill(0);
    file[HEAD + 32..HEAD + 40].copy_from_slice(&USER_END.to_le_bytes());
    file[HEAD + 40..HEAD + 48].copy_from_slice(&USER_END.to_le_bytes());
    Binary::of(Path::new(name), Bytes::Owned(file), &Search::default()).map(Arc::new).map_err(|error| error.to_string())
}

/// Where the code begins in a file of so many parts; one part comes behind the other.
pub fn code_at(parts: usize) -> u64 {
    ((HEAD + parts * PROGRAM) as u64).next_multiple_of(16)
}

/// An ELF file of one loaded part, which begins with the second page of the file, as linkers make them.
#[cfg(test)]
pub fn file(address: u64, code: &[u8], functions: &[&Function]) -> Vec<u8> {
    of_parts(&[(address, code)], functions, 0x1000)
}

/// The same of several parts, in this order.
#[cfg(test)]
pub fn file_of(parts: &[(u64, &[u8])]) -> Vec<u8> {
    of_parts(parts, &[], 0x1000)
}

/// What `objcopy --only-keep-debug` leaves of such a file, but for the bytes: other sections are in their place.
#[cfg(test)]
pub fn debug_file(address: u64, code: &[u8], functions: &[&Function]) -> Vec<u8> {
    let mut file = file(address, code, functions);
    let sections = u64::from_le_bytes(file[0x28..0x30].try_into().unwrap()) as usize;
    // SHT_NOBITS as the type of `.text`.
    file[sections + SECTION + 4] = 8;
    file
}

/// An ELF file of loaded parts, fewer than 2^16, of which the first is `.text`, and `.symtab` (System V ABI, chapter 4,
/// and ELF-64 object file format). `code_at`: where they stand, behind the program headers.
fn of_parts(parts: &[(u64, &[u8])], functions: &[&Function], code_at: usize) -> Vec<u8> {
    const SECTIONS: &[u8] = b"\0.text\0.symtab\0.strtab\0.shstrtab\0";
    let (text, text_size) = parts.first().map_or((0, 0), |&(address, code)| (address, code.len()));
    let (mut symbols, mut strings) = (vec![0; 24], vec![0]);
    for function in functions {
        let inside = function.address.wrapping_sub(text) < text_size as u64;
        symbols.extend((strings.len() as u32).to_le_bytes());
        // STB_LOCAL, STB_GLOBAL, STB_WEAK; STT_FUNC.
        let binding = match function.binding {
            Binding::Local => 0,
            Binding::Global => 1,
            Binding::Weak => 2,
        };
        symbols.extend([binding << 4 | 2, 0]);
        symbols.extend(if inside { 1 } else { NOWHERE }.to_le_bytes());
        symbols.extend(function.address.to_le_bytes());
        symbols.extend(function.size.to_le_bytes());
        strings.extend(function.name.bytes().filter(|&byte| byte != 0));
        strings.push(0);
    }
    let code_size: usize = parts.iter().map(|(_, code)| code.len()).sum();
    let symbols_at = (code_at + code_size).next_multiple_of(8);
    let strings_at = symbols_at + symbols.len();
    let names_at = strings_at + strings.len();
    let table_at = (names_at + SECTIONS.len()).next_multiple_of(8);

    let mut file = Vec::with_capacity(table_at + 5 * SECTION);
    file.extend(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    put(&mut file, &[(3, 2), (62, 2), (1, 4), (0, 8), (HEAD as u64, 8), (table_at as u64, 8), (0, 4)]);
    let count = parts.len() as u64;
    put(&mut file, &[(HEAD as u64, 2), (PROGRAM as u64, 2), (count, 2), (SECTION as u64, 2), (5, 2), (4, 2)]);
    let mut at = code_at as u64;
    for (address, code) in parts {
        let size = code.len() as u64;
        put(&mut file, &[(1, 4), (5, 4), (at, 8), (*address, 8), (*address, 8), (size, 8), (size, 8), (1, 8)]);
        at += size;
    }
    file.resize(code_at, 0);
    parts.iter().for_each(|(_, code)| file.extend_from_slice(code));
    file.resize(symbols_at, 0);
    file.extend(&symbols);
    file.extend(&strings);
    file.extend(SECTIONS);
    file.resize(table_at + SECTION, 0);
    let section = |file: &mut Vec<u8>, name: u64, kind: u64, flags: u64, address: u64, place: (usize, usize), more| {
        let [link, info, align, entry]: [u64; 4] = more;
        put(file, &[(name, 4), (kind, 4), (flags, 8), (address, 8), (place.0 as u64, 8), (place.1 as u64, 8)]);
        put(file, &[(link, 4), (info, 4), (align, 8), (entry, 8)]);
    };
    section(&mut file, 1, 1, 6, text, (code_at, text_size), [0, 0, 16, 0]);
    section(&mut file, 7, 2, 0, 0, (symbols_at, symbols.len()), [3, 1, 8, 24]);
    section(&mut file, 15, 3, 0, 0, (strings_at, strings.len()), [0, 0, 1, 0]);
    section(&mut file, 23, 3, 0, 0, (names_at, SECTIONS.len()), [0, 0, 1, 0]);
    file
}

/// Numbers, each of so many bytes.
fn put(file: &mut Vec<u8>, numbers: &[(u64, usize)]) {
    for (number, size) in numbers {
        file.extend(&number.to_le_bytes()[..*size]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pt_flow::CodeMemory;
    use pt_image::{Image, Role, Symbols};

    #[test]
    fn code_has_the_names_that_were_given() {
        let one = Function { address: 0x7f00_0000_1000, size: 4, name: "first".to_owned(), ..Function::default() };
        let two = Function { address: 0x7f00_0000_1004, size: 0, name: "second".to_owned(), ..Function::default() };
        let code = [0x90, 0x90, 0x90, 0xc3, 0xcc, 0xc3];
        let binary = binary("[jit]", &[(0x7f00_0000_1000, &code)], &[&one, &two]).unwrap();
        assert!(binary.functions().iter().all(|function| function.role != Role::Start));
        let mut image = Image::new();
        image.map(0, 0x7f00_0000_1000, 6, code_at(1), &binary, "[jit]").unwrap();
        assert_eq!(image.read(0, 0x7f00_0000_1003).unwrap().bytes, [0xc3, 0xcc, 0xc3]);
        let name = |address| {
            let place = image.place(0, address);
            image.describe(place.space, place.function, address).name
        };
        assert_eq!((name(0x7f00_0000_1001), name(0x7f00_0000_1005)), ("first".to_owned(), "second".to_owned()));
    }
}
