//! Stubs that lead to functions of other files.

use crate::support::{have, Folder, GCC};
use pt_image::{Binary, Role, Search};

#[test]
fn stubs_have_the_names_of_what_they_lead_to() {
    if !have(&[GCC]) {
        return;
    }
    let program = "#include <stdlib.h>\n#include <string.h>\nint main(int c, char **v) { free(malloc(c)); return strlen(v[0]); }\n";
    for flags in [
        &["-Wl,-z,lazy"][..],
        &["-Wl,-z,now"],
        &["-fcf-protection=full", "-Wl,-z,lazy", "-Wl,-z,ibtplt"],
        &["-no-pie", "-Wl,-z,lazy"],
    ] {
        let folder = Folder::new();
        folder.write("program.c", program);
        folder.run("gcc", &[&["-O0", "-fno-builtin", "-o", "program", "program.c"], flags].concat());
        let binary = Binary::load(&folder.join("program"), &Search::default()).unwrap();
        let stubs = binary.functions().iter().filter(|function| function.role == Role::Stub);
        let mut names: Vec<_> = stubs.filter_map(|stub| binary.name(stub)).collect();
        names.sort();
        names.dedup();
        let expected = ["free@plt", "malloc@plt", "strlen@plt"];
        assert!(expected.iter().all(|&name| names.iter().any(|known| known == name)), "{flags:?}: {names:?}");
        // No function of the program itself is one.
        assert!(names.iter().all(|name| name.ends_with("@plt")), "{names:?}");
        // In front of them stands what leads to the resolver, without a name.
        let unnamed = |function: &&pt_image::Function| function.role == Role::Stub && binary.name(function).is_none();
        assert_eq!(binary.functions().iter().filter(unnamed).count(), 1, "{flags:?}");
    }
}
