//! The names of the kernel's functions as it tells them itself, in /proc/kallsyms.

use super::{Recorded, OTHER};
use crate::bytes::Bytes;
use crate::elf::Function;
use crate::CaptureError;
use pt_image::Binding;
use std::path::Path;

/// By address, of lines of `address type name [module]`; they reach to the next one.
pub fn functions(path: &Path, recorded: &Recorded) -> Result<Vec<Function>, CaptureError> {
    let text = Bytes::open(path).map_err(|error| CaptureError::unreadable(path, error))?;
    let mut functions: Vec<_> = String::from_utf8_lossy(&text).lines().filter_map(function).collect();
    if functions.is_empty() {
        let what = "it holds no address of a function (read as root, with kernel.kptr_restrict at most 1)";
        return Err(CaptureError::option(&path.display().to_string(), what));
    }
    if let Some((name, address)) = &recorded.symbol {
        let own = functions.iter().find(|function| function.name == *name).map(|function| function.address);
        if let Some(own) = own.filter(|own| own != address) {
            let what = format!("it has {name} at {own:#x}, the recorded kernel had it at {address:#x}: {OTHER}");
            return Err(CaptureError::option(&path.display().to_string(), what));
        }
    }
    functions.sort_by_key(|function| (function.address, is_marker(&function.name)));
    functions.dedup_by(|one, before| one.address == before.address && is_marker(&one.name));
    Ok(functions)
}

fn function(line: &str) -> Option<Function> {
    let mut words = line.split_ascii_whitespace();
    let address = u64::from_str_radix(words.next()?, 16).ok().filter(|&address| address != 0)?;
    // As nm(1) has them.
    let binding = match words.next()? {
        "T" => Binding::Global,
        "W" | "w" => Binding::Weak,
        "t" => Binding::Local,
        _ => return None,
    };
    Some(Function { address, size: 0, name: words.next()?.to_owned(), binding })
}

/// Where a part of the kernel's text begins or ends (include/asm-generic/vmlinux.lds.h of Linux): in its file such a symbol
/// has no size, here nothing else tells it from the function that stands there.
fn is_marker(name: &str) -> bool {
    name.starts_with("__") && (name.ends_with("_text_start") || name.ends_with("_text_end"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf;
    use crate::temporary::TemporaryFile;

    const TEXT: u64 = 0xffff_ffff_8100_0000;

    /// What is told at each of the addresses, 16 bytes each, which have these symbols.
    fn told(symbols: &[&[&str]]) -> Vec<String> {
        let line = |(at, symbol): (u64, &&str)| format!("{:x} {symbol}\n", TEXT + 16 * at);
        let lines = (0..).zip(symbols).flat_map(|(at, names)| names.iter().map(move |name| (at, name)));
        let text: String = lines.map(line).collect();
        let file = TemporaryFile::new(text.as_bytes()).unwrap();
        let functions = functions(&file.0, &Recorded::default()).unwrap();
        let code = vec![0x90; 16 * symbols.len()];
        let binary = elf::binary("[kernel]", &[(TEXT, &code)], &functions.iter().collect::<Vec<_>>()).unwrap();
        binary.functions().iter().map(|function| binary.name(function).unwrap()).collect()
    }

    #[test]
    fn of_several_names_a_global_one_goes_before_a_weak_one_and_that_before_a_local_one() {
        let names = [
            &["t local", "T the_global_one"][..],
            &["W weak", "T the_strong_one"],
            &["t local", "W the_weak_one"],
            &["t longer_local", "t local"],
        ];
        assert_eq!(told(&names), ["the_global_one", "the_strong_one", "the_weak_one", "local"]);
    }

    #[test]
    fn where_a_part_of_the_text_begins_or_ends_is_no_name_of_the_function_there() {
        let names = [
            &["T __lock_text_start", "T _raw_spin_trylock"][..],
            &["T __softirqentry_text_start", "T __irqentry_text_end", "t asm_call_irq_on_stack_and_longer"],
            // Nothing else is there.
            &["T __lock_text_end"],
        ];
        assert_eq!(told(&names), ["_raw_spin_trylock", "asm_call_irq_on_stack_and_longer", "__lock_text_end"]);
    }
}
