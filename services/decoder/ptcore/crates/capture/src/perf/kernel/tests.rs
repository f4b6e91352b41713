//! Where the kernel's code comes from.

use super::*;
use crate::elf;
use crate::open;
use crate::perf::recording::{halves, named, runs, text, words, Folder, Pipe};
use crate::temporary::TemporaryFile;
use crate::unpacked::tests::{gzip, zstd};
use pt_flow::CodeMemory;
use pt_image::{Image, Symbols};
use std::path::PathBuf;
use std::process::Command;

const CODE: [u8; 4] = [0x90, 0xc3, 0x90, 0xc3];

fn built(options: &Options, recorded: &Recorded) -> (Image, Vec<(u64, u32)>) {
    let mut spaces = Spaces::default();
    let poke = Content::Code([0xcc].as_slice().into());
    let address = 0xffff_ffff_a000_0001;
    spaces.map(KERNEL, 500, Mapping { address, size: 1, name: "[kernel]".to_owned(), content: poke });
    map(&mut spaces, recorded, options, &mut Vec::new()).unwrap();
    let built = spaces.build(KERNEL);
    assert_eq!(built.refused, Vec::<String>::new());
    (built.image, built.epochs)
}

fn name(image: &Image, address: u64) -> String {
    let place = image.place(0, address);
    image.describe(place.space, place.function, address).name
}

#[test]
fn a_kcore_holds_the_code_and_kallsyms_the_names_until_the_kernel_changes_it() {
    let kcore = TemporaryFile::new(&elf::file(0xffff_ffff_a000_0000, &CODE, &[])).unwrap();
    let names = "0000000000000000 A fixed\nffffffffa0000000 T first\nffffffffa0000002 t second\t[module]\n";
    let kallsyms = TemporaryFile::new(names.as_bytes()).unwrap();
    let options = Options { kcore: Some(kcore.0.clone()), kallsyms: Some(kallsyms.0.clone()), ..Options::default() };
    let (image, epochs) = built(&options, &Recorded::default());
    assert_eq!(epochs, [(500, 1)]);
    assert_eq!(image.read(0, 0xffff_ffff_a000_0001).unwrap().bytes[0], 0xc3);
    assert_eq!(image.read(1, 0xffff_ffff_a000_0001).unwrap().bytes[0], 0xcc);
    assert_eq!(name(&image, 0xffff_ffff_a000_0000), "first");
    assert_eq!(name(&image, 0xffff_ffff_a000_0003), "second");
    assert_eq!(image.address_of(b"second"), Some(0xffff_ffff_a000_0002));
    assert_eq!(image.address_of(b"third"), None);
}

#[test]
fn vmlinux_is_moved_to_where_its_text_was() {
    let text = Function { address: 0xffff_ffff_8100_0000, size: 4, name: "_text".to_owned(), ..Function::default() };
    let vmlinux = TemporaryFile::new(&elf::file(text.address, &CODE, &[&text])).unwrap();
    let options = Options { vmlinux: Some(vmlinux.0.clone()), ..Options::default() };
    let symbol = Some(("_text".to_owned(), 0xffff_ffff_a000_0000));
    let (image, _) = built(&options, &Recorded { symbol, ..Recorded::default() });
    assert_eq!(image.read(0, 0xffff_ffff_a000_0002).unwrap().bytes, &CODE[2..]);
    assert_eq!(name(&image, 0xffff_ffff_a000_0002), "_text");
    assert_eq!(image.address_of(b"_text"), Some(0xffff_ffff_a000_0000));
}

#[test]
fn a_file_that_is_no_kcore_is_refused() {
    let file = TemporaryFile::new(&elf::file(0x1000, &CODE, &[])).unwrap();
    let options = Options { kcore: Some(file.0.clone()), ..Options::default() };
    let error = map(&mut Spaces::default(), &Recorded::default(), &options, &mut Vec::new()).unwrap_err();
    assert!(error.to_string().ends_with("it is no kcore"), "{error}");
}

#[test]
fn a_kcore_whose_parts_are_the_same_bytes_over_and_over_is_refused() {
    const SIZE: usize = 1 << 21;
    let code = vec![0x90; SIZE];
    let parts: Vec<_> = (0..40).map(|number| (BOOTED + SIZE as u64 * number, &code[..])).collect();
    let mut file = kcore_of(&parts);
    for number in 0..parts.len() {
        // Where the bytes of the part stand in the file.
        let offset = 64 + 56 * (2 + number) + 8;
        file[offset..offset + 8].copy_from_slice(&0x1000u64.to_le_bytes());
    }
    file.truncate(0x1000 + SIZE);
    let file = TemporaryFile::new(&file).unwrap();
    let options = Options { kcore: Some(file.0.clone()), ..Options::default() };
    let error = map(&mut Spaces::default(), &Recorded::default(), &options, &mut Vec::new()).unwrap_err();
    assert!(error.to_string().ends_with("its parts have far more bytes than the file: it is no kcore"), "{error}");
}

/// A small kernel: its text is moved at boot (address space randomisation).
const SOURCE: &str = "
    .text
    .globl _text, work
    .type work, @function
_text:
    nop
    call work
    ret
    .balign 64
work:
    nop
    nop
    ret
    .size work, . - work
";
const LINKED: u64 = 0xffff_ffff_8100_0000;
const BOOTED: u64 = 0xffff_ffff_9a00_0000;
const MODULE: u64 = 0xffff_ffff_c000_0000;
const BUILD_ID: &str = "0123456789abcdef0123456789abcdef01234567";

/// `None`, with a word on stderr, where there is no C compiler.
fn build(folder: &Folder, name: &str) -> Option<PathBuf> {
    let source = folder.add("kernel.s", SOURCE.as_bytes());
    let built = folder.0.join(name);
    let mut cc = Command::new("cc");
    cc.args(["-nostdlib", "-static", "-Wl,--entry=_text"])
        .arg(format!("-Wl,-Ttext={LINKED:#x},--build-id=0x{BUILD_ID}"));
    match cc.arg(source).arg("-o").arg(&built).status() {
        Ok(status) => assert!(status.success()),
        Err(error) => {
            eprintln!("skipped: no C compiler: {error}");
            return None;
        }
    }
    Some(built)
}

/// Bytes of the kernel's text.
fn text_of(vmlinux: &Path) -> Vec<u8> {
    let bytes = std::fs::read(vmlinux).unwrap();
    let parts = loaded(&bytes).unwrap();
    let part = parts.iter().find(|part| part.address == LINKED).unwrap();
    bytes[part.offset as usize..][..part.size as usize].to_vec()
}

/// A copy of /proc/kcore: notes, then what stands at some addresses (System V ABI, chapter 5). The first part is all
/// memory, of which the copy holds nothing.
fn kcore_of(parts: &[(u64, &[u8])]) -> Vec<u8> {
    let mut heads = vec![(4u32, 0, 0, 0), (1, 0xffff_8880_0000_0000, 1 << 40, 1 << 44)];
    let mut at = 0x1000;
    for (address, code) in parts {
        heads.push((1, *address, code.len() as u64, at));
        at += code.len() as u64;
    }
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    file.extend([4u16, 62].map(u16::to_le_bytes).concat());
    file.extend([&1u32.to_le_bytes()[..], &words(&[0, 64, 0]), &0u32.to_le_bytes()].concat());
    file.extend([64, 56, heads.len() as u16, 0, 0, 0].map(u16::to_le_bytes).concat());
    for (kind, address, size, offset) in heads {
        file.extend([halves(&[kind, 7]), words(&[offset, address, 0, size, size, 0x1000])].concat());
    }
    file.resize(0x1000, 0);
    parts.iter().for_each(|(_, code)| file.extend_from_slice(code));
    file
}

/// A recording of a kernel that was booted there: `_text` ran up to the return of `work`, then `work`, then a module.
fn recording() -> Pipe {
    let mut pipe = Pipe::new();
    let id: Vec<_> = (0..20).map(|at| u8::from_str_radix(&BUILD_ID[2 * at..][..2], 16).unwrap()).collect();
    pipe.record(67, 1, &[halves(&[u32::MAX]), id, vec![0; 4], text("[kernel.kallsyms]")].concat());
    let place = [halves(&[u32::MAX, 0]), words(&[BOOTED, 0x100_0000, BOOTED])].concat();
    pipe.event(1, 1, &[place, text("[kernel.kallsyms]_text")].concat(), (u32::MAX, 0, 0, 0));
    let place = [halves(&[u32::MAX, 0]), words(&[MODULE, 0x1000, 0])].concat();
    pipe.event(1, 1, &[place, text("[net]")].concat(), (u32::MAX, 0, 0, 0));
    pipe.enters((7, 7, 10, 0));
    pipe.ran(0, &[(100, BOOTED), (200, BOOTED + 64), (300, MODULE)]);
    pipe
}

fn refusal(folder: &Folder, options: Options) -> String {
    let path = folder.add("perf.data", &recording().0);
    let refused = open(&path, &Options { symbols: vec![folder.0.clone()], ..options });
    refused.err().expect("it is not refused").to_string()
}

#[test]
fn vmlinux_is_found_by_the_build_id_of_the_recorded_kernel() {
    let folder = Folder::new("vmlinux");
    if build(&folder, "vmlinux").is_none() {
        return;
    }
    let capture = recording().open(&folder, Options::default());
    let no_module = "[net]: net.ko: the file is not there; a kcore would have its code";
    let as_built = format!("{}: {AS_BUILT}", folder.0.join("vmlinux").display());
    assert_eq!(capture.warnings, [&as_built, no_module]);
    assert_eq!(runs(&capture), [(7, vec![5, 3, 0])]);
    assert_eq!(named(&capture, BOOTED + 65), "work");
    assert_eq!(capture.memory().why_no_code(0, MODULE), no_module);
}

#[test]
fn vmlinux_is_found_where_distributions_have_it() {
    let folder = Folder::new("distributions");
    let Some(vmlinux) = build(&folder, "linked") else { return };
    let mut recording = recording();
    recording.release("6.1.0-x");
    let (first, rest) = BUILD_ID.split_at(2);
    let by_id = format!(".build-id/{first}/{rest}.debug");
    for place in [
        "boot/vmlinux-6.1.0-x",
        "lib/modules/6.1.0-x/vmlinux",
        "lib/modules/6.1.0-x/build/vmlinux",
        "usr/lib/debug/boot/vmlinux-6.1.0-x",
        "usr/lib/debug/lib/modules/6.1.0-x/vmlinux",
        &format!("usr/lib/debug/{by_id}"),
        &by_id,
    ] {
        let there = folder.0.join(place);
        std::fs::create_dir_all(there.parent().unwrap()).unwrap();
        std::fs::rename(&vmlinux, &there).unwrap();
        assert_eq!(runs(&recording.open(&folder, Options::default())), [(7, vec![5, 3, 0])], "{place}");
        std::fs::rename(&there, &vmlinux).unwrap();
    }
}

#[test]
fn functions_of_a_vmlinux_are_not_traced_and_keep_their_names() {
    let at = |offset, size, name: &str| Function {
        address: LINKED + offset,
        size,
        name: name.to_owned(),
        ..Function::default()
    };
    let functions = [at(0, 7, "_text"), at(7, 1, "__fentry__")];
    // call, nop, ret; ret.
    let code = [0xe8, 2, 0, 0, 0, 0x90, 0xc3, 0xc3];
    let file = elf::file(LINKED, &code, &functions.iter().collect::<Vec<_>>());
    let vmlinux = TemporaryFile::new(&file).unwrap();
    let folder = Folder::new("traced-functions");
    let capture = recording().open(&folder, Options { vmlinux: Some(vmlinux.0.clone()), ..Options::default() });
    assert_eq!(runs(&capture)[0].1[0], 3);
    assert_eq!((named(&capture, BOOTED), named(&capture, BOOTED + 5)), ("_text".to_owned(), "_text".to_owned()));
}

#[test]
fn a_vmlinux_names_what_is_in_a_kcore_where_kallsyms_do_not() {
    let folder = Folder::new("named-kcore");
    let Some(vmlinux) = build(&folder, "linked") else { return };
    let kcore = folder.add("kcore", &kcore_of(&[(BOOTED, &text_of(&vmlinux)), (MODULE, &CODE)]));
    let options = Options { kcore: Some(kcore), vmlinux: Some(vmlinux), ..Options::default() };
    let capture = recording().open(&folder, options.clone());
    assert_eq!(capture.warnings, Vec::<String>::new());
    assert_eq!(runs(&capture), [(7, vec![5, 3, 2])]);
    assert_eq!(named(&capture, BOOTED + 65), "work");
    let kallsyms = Some(folder.add("kallsyms", format!("{BOOTED:x} T _text\n{:x} t job\n", BOOTED + 64).as_bytes()));
    let capture = recording().open(&folder, Options { kallsyms, ..options });
    let unused = "not used of what was given: vmlinux: the kcore has the kernel's code, kallsyms its names";
    assert_eq!(capture.warnings, [unused]);
    assert_eq!(named(&capture, BOOTED + 65), "job");
}

#[test]
fn a_program_is_no_vmlinux() {
    let file = TemporaryFile::new(&elf::file(0x40_0000, &CODE, &[])).unwrap();
    let options = Options { vmlinux: Some(file.0.clone()), ..Options::default() };
    let error = map(&mut Spaces::default(), &Recorded::default(), &options, &mut Vec::new()).unwrap_err();
    let what = "no part of it is code at 0xffffffff80000000 or above: it is no kernel";
    assert!(error.to_string().ends_with(what), "{error}");
}

#[test]
fn a_vmlinux_without_code_is_refused() {
    let whole = elf::file(LINKED, &CODE, &[]);
    let section = u64::from_le_bytes(whole[40..48].try_into().unwrap()) as usize + 64;
    // As in packages of headers, where data are in an executable segment: no SHF_EXECINSTR. As `objcopy --only-keep-debug` has
    // it: SHT_NOBITS.
    for (place, value, why) in [(section + 8, 2, "it has no code"), (section + 4, 8, "its code is not in it")] {
        let mut file = whole.clone();
        file[place] = value;
        let folder = Folder::new("no-code");
        let refused = refusal(&folder, Options { vmlinux: Some(folder.add("vmlinux", &file)), ..Options::default() });
        assert!(refused.contains(why), "{refused}");
    }
}

#[test]
fn a_vmlinux_of_which_nothing_says_whether_it_is_the_recorded_kernel_is_told() {
    let text = Function { address: LINKED, size: 4, name: "_text".to_owned(), ..Function::default() };
    let symbol = Some(("_text".to_owned(), BOOTED));
    let told = |functions: &[&Function], symbol: &Option<(String, u64)>| {
        let vmlinux = TemporaryFile::new(&elf::file(LINKED, &CODE, functions)).unwrap();
        let options = Options { vmlinux: Some(vmlinux.0.clone()), ..Options::default() };
        let recorded = Recorded { symbol: symbol.clone(), ..Recorded::default() };
        let mut warnings = Vec::new();
        map(&mut Spaces::default(), &recorded, &options, &mut warnings).unwrap();
        let what = "neither a build id nor a symbol says whether it is the recorded kernel";
        warnings.iter().filter(|warning| *warning == &format!("{}: {what}", vmlinux.0.display())).count()
    };
    assert_eq!((told(&[&text], &symbol), told(&[], &symbol), told(&[&text], &None)), (0, 1, 1));
}

#[test]
fn a_packed_vmlinux_is_unpacked_whether_it_is_given_or_found() {
    let folder = Folder::new("packed-vmlinux");
    let Some(vmlinux) = build(&folder, "kernel") else { return };
    let bytes = std::fs::read(vmlinux).unwrap();
    let given = folder.add("given", &gzip(&bytes));
    let capture = recording().open(&folder, Options { vmlinux: Some(given), ..Options::default() });
    assert_eq!(runs(&capture), [(7, vec![5, 3, 0])]);
    folder.add("vmlinux.zst", &zstd(&bytes));
    let capture = recording().open(&folder, Options::default());
    assert_eq!(runs(&capture), [(7, vec![5, 3, 0])]);
}

#[test]
fn a_vmlinux_of_another_kernel_is_refused_or_not_taken() {
    let folder = Folder::new("other-vmlinux");
    let Some(vmlinux) = build(&folder, "vmlinux") else { return };
    let bytes = std::fs::read(&vmlinux).unwrap();
    let at = bytes.windows(4).position(|bytes| bytes == [0x01, 0x23, 0x45, 0x67]).unwrap();
    let other = [&bytes[..at], &[0xff], &bytes[at + 1..]].concat();
    folder.add("vmlinux", &other);
    let refused = refusal(&folder, Options { vmlinux: Some(vmlinux), ..Options::default() });
    let ids =
        format!("its build id is ff{}, that of the recorded kernel {BUILD_ID}: it is another one", &BUILD_ID[2..]);
    assert!(refused.ends_with(&ids), "{refused}");
    let capture = recording().open(&folder, Options::default());
    let none = format!(
        "no kernel code was given (vmlinux or kcore), and no vmlinux with build id {BUILD_ID} is there: \
         what the kernel ran cannot be followed"
    );
    assert_eq!(capture.warnings, [none]);
    let why = capture.memory().why_no_code(0, BOOTED);
    assert_eq!(why, "[kernel.kallsyms]_text: no kernel code was given (vmlinux or kcore)");
}

#[test]
fn the_folder_of_perf_record_with_kcore_holds_the_kernel_as_it_ran() {
    let folder = Folder::new("kcore-dir");
    let Some(vmlinux) = build(&folder, "linked") else { return };
    let beside = folder.0.join("perf.data");
    std::fs::create_dir_all(beside.join("kcore_dir")).unwrap();
    // As it is in memory the kernel may differ from its file: the second nop of `work` is a return by now.
    let mut code = text_of(&vmlinux);
    code[65] = 0xc3;
    std::fs::write(beside.join("data"), recording().0).unwrap();
    std::fs::write(beside.join("kcore_dir/kcore"), kcore_of(&[(BOOTED, &code), (MODULE, &[0x90, 0x90, 0x90, 0xc3])]))
        .unwrap();
    let switch = BOOTED + 66;
    let names = format!(
        "{BOOTED:x} T _text\n{:x} t work\n{switch:x} T __switch_to_asm\n{MODULE:x} t send\t[net]\n",
        BOOTED + 64
    );
    std::fs::write(beside.join("kcore_dir/kallsyms"), names).unwrap();
    let capture = open(&beside, &Options::default()).unwrap();
    assert_eq!(capture.warnings, Vec::<String>::new());
    assert_eq!(runs(&capture), [(7, vec![4, 2, 4])]);
    assert_eq!((named(&capture, BOOTED + 65), named(&capture, MODULE + 3)), ("work".to_owned(), "send".to_owned()));
    assert_eq!(capture.config.thread_switch, Some(switch));
}

#[test]
fn what_a_kcore_holds_below_the_text_is_taken_where_perf_says_that_the_kernel_is() {
    let folder = Folder::new("kcore-trampoline");
    let (trampoline, memory) = (0xffff_fe00_0000_6000, 0xffff_8880_0000_1000);
    let kcore = folder.add("kcore", &kcore_of(&[(memory, &CODE), (trampoline, &CODE), (BOOTED, &CODE)]));
    let mut pipe = Pipe::new();
    let symbols = [(BOOTED, BOOTED, "[kernel.kallsyms]_text"), (trampoline, 0x6000, "__entry_SYSCALL_64_trampoline")];
    for (address, offset, name) in symbols {
        let place = [halves(&[u32::MAX, 0]), words(&[address, 0x1000, offset])].concat();
        pipe.event(1, 1, &[place, text(name)].concat(), (u32::MAX, 0, 0, 0));
    }
    pipe.enters((7, 7, 10, 0));
    pipe.ran(0, &[(100, BOOTED), (200, trampoline), (300, memory)]);
    let capture = pipe.open(&folder, Options { kcore: Some(kcore), ..Options::default() });
    assert_eq!(runs(&capture), [(7, vec![2, 2, 0])]);
    assert_eq!(capture.memory().why_no_code(0, memory), "nothing was mapped there");
}

#[test]
fn what_system_calls_enter_by_is_text_of_vmlinux_at_another_address() {
    let folder = Folder::new("vmlinux-trampoline");
    let trampoline = 0xffff_fe00_0000_6000;
    let at = |offset, name: &str| Function {
        address: LINKED + offset,
        size: 2,
        name: name.to_owned(),
        ..Function::default()
    };
    let functions = [at(0, "_text"), at(2, "entry_SYSCALL_64_trampoline")];
    let vmlinux = folder.add("linked", &elf::file(LINKED, &CODE, &functions.iter().collect::<Vec<_>>()));
    let mut pipe = Pipe::new();
    let own = (trampoline, BOOTED + 2, "__entry_SYSCALL_64_trampoline");
    for (address, offset, name) in [(BOOTED, BOOTED, "[kernel.kallsyms]_text"), own] {
        let place = [halves(&[u32::MAX, 0]), words(&[address, 0x1000, offset])].concat();
        pipe.event(1, 1, &[place, text(name)].concat(), (u32::MAX, 0, 0, 0));
    }
    pipe.enters((7, 7, 10, 0));
    pipe.ran(0, &[(100, BOOTED), (200, trampoline), (300, trampoline + 2)]);
    let capture = pipe.open(&folder, Options { vmlinux: Some(vmlinux), ..Options::default() });
    // Behind it the file has no more text.
    assert_eq!(runs(&capture), [(7, vec![2, 2, 0])]);
    assert_eq!(named(&capture, trampoline + 1), "entry_SYSCALL_64_trampoline");
}

#[test]
fn what_a_kcore_does_not_hold_is_told() {
    let folder = Folder::new("kcore-part");
    let Some(vmlinux) = build(&folder, "linked") else { return };
    let kcore = folder.add("kcore", &kcore_of(&[(BOOTED, &text_of(&vmlinux))]));
    let capture = recording().open(&folder, Options { kcore: Some(kcore.clone()), ..Options::default() });
    assert_eq!(runs(&capture), [(7, vec![5, 3, 0])]);
    assert_eq!(capture.memory().why_no_code(0, MODULE), format!("[net]: {} has no code there", kcore.display()));
}

#[test]
fn what_came_to_where_a_kcore_has_no_code_is_lost_and_not_run_as_zeros() {
    let folder = Folder::new("kcore-hole");
    // Between two modules, of which the second is in the third page.
    let mut modules = [&CODE[..], &[0; 3 * 4096]].concat();
    modules[2 * 4096..][..4].copy_from_slice(&CODE);
    let kcore = folder.add("kcore", &kcore_of(&[(BOOTED, &CODE), (MODULE, &modules)]));
    let names = format!("{BOOTED:x} T _text\n{MODULE:x} t send\t[net]\n{:x} t get\t[other]\n", MODULE + 2 * 4096);
    let kallsyms = Some(folder.add("kallsyms", names.as_bytes()));
    let mut pipe = Pipe::new();
    pipe.enters((7, 7, 10, 0));
    pipe.ran(0, &[(100, MODULE), (200, MODULE + 4096), (300, MODULE + 2 * 4096)]);
    let capture = pipe.open(&folder, Options { kcore: Some(kcore), kallsyms, ..Options::default() });
    assert_eq!(runs(&capture), [(7, vec![2, 0, 2])]);
    assert_eq!(capture.memory().why_no_code(0, MODULE + 4096), format!("[kernel]: {EMPTY}"));
    assert_eq!(
        (named(&capture, MODULE + 1), named(&capture, MODULE + 2 * 4096)),
        ("send".to_owned(), "get".to_owned())
    );
}

#[test]
fn a_kcore_or_kallsyms_of_another_machine_is_refused() {
    let folder = Folder::new("other-kcore");
    let kcore = |address: u64| Some(folder.add("kcore", &kcore_of(&[(address, &CODE)])));
    let refused = refusal(&folder, Options { kcore: kcore(BOOTED + 0x100_0000), ..Options::default() });
    let other = "it is of another machine, or of another boot";
    let no_code = format!("it has no code at {BOOTED:#x}, where the recorded kernel had _text: {other}");
    assert!(refused.ends_with(&no_code), "{refused}");
    let kallsyms = Some(folder.add("kallsyms", format!("{LINKED:x} T _text\n{:x} T work\n", LINKED + 64).as_bytes()));
    let refused = refusal(&folder, Options { kcore: kcore(BOOTED), kallsyms, ..Options::default() });
    let elsewhere = format!("it has _text at {LINKED:#x}, the recorded kernel had it at {BOOTED:#x}: {other}");
    assert!(refused.ends_with(&elsewhere), "{refused}");
}
