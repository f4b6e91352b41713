//! Parts that compilers move away from their functions and name for them.

use crate::support::{have, Folder, CLANG};
use pt_image::{Binary, Search};

const PROGRAM: &str = "\
#include <cstdio>
#include <stdexcept>
__attribute__((noinline)) int work(int n) {
    try {
        if (__builtin_expect(n > 1000, 0)) { printf(\"many\"); throw std::runtime_error(\"too many\"); }
        for (int i = 0; i < n; i++) if (i % 3 == 0) printf(\"%d\", i); else puts(\"other\");
    } catch (std::exception &error) { puts(error.what()); return 3; }
    return n;
}
int main(int count, char **) { return work(count) + work(count * 2000); }
";

fn built(flags: &[&str]) -> (Binary, Folder) {
    let folder = Folder::new();
    folder.write("program.cpp", PROGRAM);
    // The parts of one function, by the numbers of its blocks: what is not in the list is cold.
    folder.write("list", "!_Z4worki\n!!0 1\n!!2 3\n");
    folder.run("clang++", &[&["-O2", "-o", "program", "program.cpp"], flags].concat());
    (Binary::load(&folder.join("program"), &Search::default()).unwrap(), folder)
}

/// Each part and what stands around it.
fn parts(binary: &Binary) -> Vec<(String, Option<String>)> {
    let around = |address| binary.name(binary.function(binary.find(address).function?));
    let named = |one: &pt_image::Function| Some((binary.name(one)?, around(one.address)));
    let is_part = |name: &str| [".cold", ".eh", ".__part."].iter().any(|end| name.contains(end));
    binary.functions().iter().filter_map(named).filter(|(name, _)| is_part(name)).collect()
}

#[test]
fn what_clang_puts_into_other_sections_is_of_its_function() {
    if !have(&[CLANG]) {
        return;
    }
    for (way, ends) in [("all", ["__part.1", "eh"]), ("list=list", ["__part.1", "cold"])] {
        let (binary, _folder) = built(&[&format!("-fbasic-block-sections={way}")]);
        let parts = parts(&binary);
        for end in ends {
            let name = format!("work(int) [clone .{end}]");
            assert!(parts.iter().any(|(part, _)| *part == name), "{way}: no {name} in {parts:?}");
        }
        let of_work = parts.iter().filter(|(part, _)| part.starts_with("work("));
        for (part, around) in of_work {
            assert_eq!(around.as_deref(), Some("work(int)"), "{way}: {part}");
        }
    }
}
