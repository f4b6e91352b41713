//! Names and lines of stripped Go programs.

use crate::support::{self, have, Folder, GO, OBJCOPY};
use pt_image::{Binary, Role, Search};
use std::collections::BTreeMap;

const PROGRAM: &str = r#"package main

import "fmt"

type shelf struct{ books []string }

//go:noinline
func (s *shelf) put(book string) int {
	s.books = append(s.books, book)
	return len(s.books)
}

func main() {
	s := &shelf{}
	fmt.Println(s.put("permille"))
}
"#;
const WITH_C: &str = "\n// int twice(int x) { return 2 * x; }\nimport \"C\"\n\nfunc init() { _ = C.twice(2) }\n";

fn program(with_c: bool) -> Folder {
    let folder = Folder::new();
    folder.write("go.mod", "module shelf\n\ngo 1.20\n");
    folder.write("main.go", PROGRAM);
    if with_c {
        folder.write("c.go", &format!("package main\n{WITH_C}"));
    }
    folder
}

fn load(folder: &Folder, name: &str) -> Binary {
    Binary::load(&folder.join(name), &Search::default()).unwrap()
}

fn named(binary: &Binary) -> BTreeMap<u64, String> {
    binary.functions().iter().filter_map(|function| Some((function.address, binary.name(function)?))).collect()
}

/// What the symbol table of the unstripped program says, the stripped one knows from Go's own.
#[test]
fn a_stripped_program_has_the_names_and_lines_of_the_whole_one() {
    if !have(&[GO, OBJCOPY]) {
        return;
    }
    let gcc = have(&[support::GCC]);
    for (mode, with_c) in [("exe", false), ("pie", false), ("exe", true), ("pie", true)] {
        if with_c && !gcc {
            continue;
        }
        let folder = program(with_c);
        folder.run("go", &["build", "-buildmode", mode, "-o", "whole", "."]);
        folder.run("objcopy", &["--strip-all", "whole", "stripped"]);
        let (whole, stripped) = (load(&folder, "whole"), load(&folder, "stripped"));
        assert_eq!(whole.symbol_status(), "symtab");
        assert_eq!(stripped.symbol_status(), "gopclntab");
        let (expected, found) = (named(&whole), named(&stripped));
        let put = found.iter().find(|(_, name)| *name == "main.(*shelf).put").map(|(&address, _)| address);
        let address = put.unwrap_or_else(|| panic!("{mode} {with_c}: no main.(*shelf).put"));
        assert_eq!(expected[&address], "main.(*shelf).put");
        let of_go = |name: &&String| name.starts_with("runtime.(*") || name.starts_with("fmt.(*");
        let count = expected.values().filter(of_go).count();
        assert!(count > 100);
        for binary in [&whole, &stripped] {
            let role = |name: &str| {
                let mut named =
                    binary.functions().iter().filter(|function| binary.name(function).as_deref() == Some(name));
                named.next().map(|function| function.role)
            };
            assert_eq!(role("runtime.execute"), Some(Role::Switch), "{mode} {with_c}");
            assert_eq!(role("gogo"), Some(Role::LongJump), "{mode} {with_c}");
        }
        // Type parameters are written out in the symbol table alone.
        let same = found.iter().filter(|(address, name)| of_go(name) && expected.get(address) == Some(name)).count();
        assert!(same * 100 >= count * 95, "{mode} {with_c}: {same} of {count}");
        let (file, line) = stripped.lines(&[address]).pop().unwrap().unwrap();
        assert!(file.ends_with("main.go") && line == 8, "{file}:{line}");
        let agree = (address..address + 0x40).filter(|&at| stripped.lines(&[at]) == whole.lines(&[at])).count();
        assert!(agree >= 0x3c, "{agree}");
        let frames = stripped.frames(address);
        assert_eq!(frames[0].function.as_deref(), Some("main.(*shelf).put"));
        assert_eq!(frames[0].line, Some(8));
    }
}
