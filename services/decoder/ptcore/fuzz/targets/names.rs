//! Any text is a symbol, whose name as people write it is not much longer than a name may be.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pt_image::{demangle, MAX_NAME};

fuzz_target!(|bytes: &[u8]| {
    let Ok(symbol) = std::str::from_utf8(bytes) else { return };
    let name = demangle(symbol);
    assert!(name.len() <= MAX_NAME.max(symbol.len()), "{} bytes", name.len());
});
