"""What code a process has, from /proc."""

from __future__ import annotations

import mmap
import os
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from permille.controller.domain.elf_notes import names
from permille.controller.domain.file_stamp import FileStamp
from permille.controller.domain.kept_files import KeptFiles
from permille.controller.domain.mapped_binaries import MappedBinaries
from permille.controller.domain.mapping import Mapping, parse_maps, parsed
from permille.controller.domain.proc_text import text_of
from permille.controller.domain.process_image import ProcessImage

MAPS = """\
00400000-00401000 r--p 00000000 08:01 11 /bin/x
00401000-00405000 r-xp 00001000 08:01 11 /bin/x
7f0000000000-7f0000002000 r-xp 00000000 08:01 12 /lib/a b.so
7f1000000000-7f1000001000 rwxp 00000000 00:00 0
7ffc00000000-7ffc00002000 r-xp 00000000 00:00 0 [vdso]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]
"""


def test_executable_mappings_of_user_code_are_what_counts() -> None:
    assert [(mapping.begin, mapping.path) for mapping in parse_maps(MAPS)] == [
        (0x401000, "/bin/x"),
        (0x7F0000000000, "/lib/a b.so"),
        (0x7F1000000000, ""),
        (0x7FFC00000000, "[vdso]"),
    ]


@pytest.mark.parametrize("character", [*"\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"])
def test_a_name_ends_where_its_line_ends(character: str, tmp_path: Path) -> None:
    path = f"/tmp/a{character}b"
    maps = tmp_path / "maps"
    maps.write_bytes(f"55d0c0000000-55d0c0001000 r-xp 00001000 fe:01 123 {path}\n".encode() * 2)
    assert [mapping.path for mapping in parse_maps(text_of(maps))] == [path, path]


def test_a_line_feed_in_a_name_is_one(tmp_path: Path) -> None:
    file = tmp_path / "a\nb\n.so"
    file.write_bytes(bytes(4096))
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 4096, mmap.MAP_PRIVATE, mmap.PROT_READ):
        shown = {mapping.path for _, mapping in parsed(text_of(Path("/proc/self/maps")))}
    assert str(file) in shown


def test_a_file_that_was_removed_has_to_be_read_from_memory() -> None:
    assert Mapping(0, 1, 0, 5, "/lib/x.so (deleted)").in_memory_only
    assert Mapping(0, 1, 0, 0, "[vdso]").in_memory_only
    assert not Mapping(0, 1, 0, 5, "/lib/x.so").in_memory_only


def looked(tmp_path: Path, *texts: str) -> ProcessImage:
    """A process of which the maps were these, one after the other; the TSC counts the looks."""
    folder = tmp_path / "7"
    folder.mkdir(exist_ok=True)
    times = iter(range(100, 200))
    image = ProcessImage(7, lambda: next(times), tmp_path)
    for text in texts:
        (folder / "maps").write_text(text)
        image.look()
    return image


def test_what_comes_to_a_free_place_is_as_if_it_had_always_been_there(tmp_path: Path) -> None:
    first = "1000-2000 r-xp 0 08:01 1 /bin/x\n"
    image = looked(tmp_path, first, first + "8000-9000 r-xp 0 08:01 2 /lib/y\n")
    assert [(change.epoch, change.tsc, change.path) for change in image.changes()] == [
        (0, 0, "/bin/x"),
        (0, 0, "/lib/y"),
    ]


def test_what_comes_to_the_place_of_another_is_a_change_with_a_time(tmp_path: Path) -> None:
    image = looked(
        tmp_path,
        "1000-2000 r-xp 0 08:01 1 /bin/x\n8000-9000 r-xp 0 08:01 2 /lib/y\n",
        "1000-2000 r-xp 0 08:01 1 /bin/x\n",
        "1000-2000 r-xp 0 08:01 1 /bin/x\n8000-9000 r-xp 0 08:01 3 /lib/z\n",
    )
    assert [(change.epoch, change.tsc, change.path) for change in image.changes()] == [
        (0, 0, "/bin/x"),
        (0, 0, "/lib/y"),
        (1, 100, "/lib/z"),
    ]


def told(image: ProcessImage) -> list[tuple[int, int, str]]:
    return [(change.epoch, change.tsc, change.path) for change in image.changes()]


def test_what_is_told_to_come_has_that_time_where_something_was(tmp_path: Path) -> None:
    image = looked(tmp_path, "1000-2000 r-xp 0 08:01 1 /bin/x\n8000-9000 r-xp 0 08:01 2 /lib/y\n")
    y, z, free = (
        Mapping(0x8000, 0x9000, 0, 2, "/lib/y"),
        Mapping(0x8800, 0xA000, 0, 3, "/lib/z"),
        Mapping(0, 1, 0, 4, "/a"),
    )
    assert [image.map(mapping, tsc) for tsc, mapping in ((5, y), (6, z), (7, free), (8, z), (9, y))] == [0, 1, 1, 0, 1]
    begun = [(0, 0, "/bin/x"), (0, 0, "/lib/y"), (0, 0, "/a")]
    assert told(image) == [*begun, (1, 6, "/lib/z"), (2, 9, "/lib/y")]


def test_a_child_begins_with_what_its_parent_has_and_another_program_with_nothing(tmp_path: Path) -> None:
    parent, child = looked(tmp_path, "1000-2000 r-xp 0 08:01 1 /bin/x\n"), ProcessImage(8, lambda: 0, tmp_path)
    assert child.fork(parent, 5) == 1
    child.begin()
    # The same program at the same place is another one.
    again = Mapping(0x1000, 0x2000, 0, 1, "/bin/x")
    assert child.map(again, 7) == 1
    assert told(child) == [(0, 0, "/bin/x"), (1, 7, "/bin/x")]
    assert told(parent) == [(0, 0, "/bin/x")]


def test_the_vdso_of_a_process_that_is_gone_is_that_of_all() -> None:
    own = [mapping for mapping in parse_maps(Path("/proc/self/maps").read_text()) if mapping.path == "[vdso]"]
    image = ProcessImage(1 << 30, lambda: 0)
    (size,) = [mapping.end - mapping.begin for mapping in own]
    for begin in (0x7FFC00000000, 0xF7FC8000):
        image.map(Mapping(begin, begin + size, 0, 0, "[vdso]"), 5)
    long, short = image.changes()
    assert (long.event, long.path) == ("map", "[vdso]") and b"__vdso_clock_gettime" in long.code
    # Programs of 32 bits have another one.
    assert (short.path, short.code) == ("", b"")


def test_a_file_that_is_removed_meanwhile_is_no_other_code(tmp_path: Path) -> None:
    line = "1000-2000 r-xp 0 08:01 1 /bin/x"
    image = looked(tmp_path, line + "\n", line + " (deleted)\n")
    # Whatever has that name now was not mapped.
    assert [(change.epoch, change.path) for change in image.changes()] == [(0, "")]


@pytest.mark.parametrize("removed", ["", " (deleted)"])
def test_what_only_tells_where_a_jitdump_is_is_no_code(tmp_path: Path, removed: str) -> None:
    dump = f"8000-9000 r-xp 0 08:01 2 /home/u/jit-7.dump{removed}\n"
    image = looked(tmp_path, "1000-2000 r-xp 0 08:01 1 /bin/x\n" + dump)
    assert [change.path for change in image.changes()] == ["/bin/x"]


def test_a_process_that_ends_keeps_what_it_had(tmp_path: Path) -> None:
    image = looked(tmp_path, "1000-2000 r-xp 0 08:01 1 /bin/x\n", "")
    (tmp_path / "7" / "maps").unlink()
    image.look()
    image.read_code()
    assert [change.path for change in image.changes()] == ["/bin/x"]


def test_what_is_mapped_of_a_file_that_is_gone_is_read_as_that_file(tmp_path: Path) -> None:
    program = tmp_path / "program"
    shutil.copy(shutil.which("sleep") or "sleep", program)
    content, build_id = program.read_bytes(), names(program)[0]
    with subprocess.Popen([program, "60"]) as child:
        maps = Path(f"/proc/{child.pid}/maps")
        while not any(mapping.path == str(program) for mapping in parse_maps(maps.read_text())):
            time.sleep(0.01)
        program.unlink()
        image = ProcessImage(child.pid, lambda: 0)
        image.look()
        image.read_code()
        child.kill()
    (gone,) = [change for change in image.changes() if change.path == str(program)]
    assert (gone.event, gone.build_id) == ("map", build_id)
    code = slice(gone.offset, gone.offset + gone.size_bytes)
    assert gone.code[:64] == content[:64]
    assert gone.code[code].rstrip(b"\0") == content[code].rstrip(b"\0")


def test_what_is_built_at_the_path_of_a_program_that_has_ended_is_not_what_it_ran(tmp_path: Path) -> None:
    program = tmp_path / "program"
    shutil.copy(shutil.which("sleep") or "sleep", program)
    mapped = FileStamp.of(program.stat())
    with subprocess.Popen([program, "60"]) as process:
        maps = Path(f"/proc/{process.pid}/maps")
        while not any(mapping.path == str(program) for mapping in parse_maps(maps.read_text())):
            time.sleep(0.01)
        image, child = ProcessImage(process.pid, lambda: 0), ProcessImage(1 << 30, lambda: 0)
        image.look()
        process.kill()
    program.unlink()
    shutil.copy("/bin/true", program)
    # The next process finds the new one, and one that was forked before has the old one.
    child.fork(image, 5)
    new = ProcessImage((1 << 30) + 1, lambda: 0)
    new.map(Mapping(0x1000, 0x2000, 0, program.stat().st_ino, str(program)), 6)
    told = [one for of in (image, child, new) for one in of.changes() if one.path == str(program)]
    assert [change.stamp for change in told] == [mapped, mapped, FileStamp.of(program.stat())]
    found = [MappedBinaries().find([image.pid], one.path, one.build_id, one.stamp) for one in told]
    assert [one is not None for one in found] == [False, False, True]


def test_a_process_that_is_gone_has_mapped_what_who_forked_it_sees(tmp_path: Path) -> None:
    program = tmp_path / "7" / "root" / "program"
    program.parent.mkdir(parents=True)
    program.write_bytes(b"seven")
    child = ProcessImage(8, lambda: 0, tmp_path)
    child.fork(ProcessImage(7, lambda: 0, tmp_path), 5)
    child.map(Mapping(0x1000, 0x2000, 0, program.stat().st_ino, "/program"), 6)
    # As overlayfs may number it.
    child.map(Mapping(0x3000, 0x4000, 0, program.stat().st_ino + 1, "/program"), 7)
    assert [change.stamp for change in child.changes()] == [FileStamp.of(program.stat()), None]


def test_files_without_names_have_so_much_room_in_all_and_what_has_none_is_told(tmp_path: Path) -> None:
    copies = [tmp_path / name for name in ("one", "other", "same")]
    for copy in copies:
        shutil.copy(shutil.which("sleep") or "sleep", copy)
    with copies[1].open("ab") as file:
        file.write(copies[0].read_bytes())
    files = KeptFiles(copies[0].stat().st_size + mmap.PAGESIZE)
    image, again = (ProcessImage(os.getpid(), lambda: 0, files=files) for _ in range(2))
    with ExitStack() as stack:
        for copy in copies:
            with copy.open("rb") as opened:
                code = mmap.PROT_READ | mmap.PROT_EXEC
                stack.enter_context(mmap.mmap(opened.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=code))
            copy.unlink()
        for one in (image, again):
            one.look()
            one.read_code()
    for one in (image, again):
        # What is the same is kept once, also of another process.
        kept = {change.path: change.code for change in one.changes() if change.path.startswith(str(tmp_path))}
        assert sorted(kept) == [str(copies[0]), str(copies[2])]
        assert kept[str(copies[0])] is kept[str(copies[2])]
    assert files.note.startswith(f"{copies[1]}: of files that were removed or replaced up to ")


COPIES = """if True:
    import ctypes, mmap, sys
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    page, code = 4096, mmap.PROT_READ | mmap.PROT_EXEC
    with open(sys.argv[1], "rb") as file:
        content = file.read()
        begin = libc.mmap(None, 3 * page, code, mmap.MAP_PRIVATE, file.fileno(), 0)
    fixed = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x10
    written, first, end = bytes.fromhex(sys.argv[2]), int(sys.argv[3]) * page, int(sys.argv[4]) * page
    libc.mmap(begin + first, end - first, code | mmap.PROT_WRITE, fixed, -1, 0)
    ctypes.memmove(begin + first, content[first:end], end - first)
    ctypes.memmove(begin + first, written, len(written))
    print(begin, flush=True)
    input()
"""


@pytest.mark.parametrize("written", [b"", b"\xcc"])
@pytest.mark.parametrize("pages", [(1, 2), (0, 2), (1, 3)])
def test_what_was_copied_out_of_a_file_for_huge_pages_is_the_files(
    pages: tuple[int, int], written: bytes, tmp_path: Path
) -> None:
    first, end = pages
    library = tmp_path / "library.so"
    library.write_bytes(bytes(range(1, 256)) * 49)
    command = [sys.executable, "-c", COPIES, str(library), written.hex(), str(first), str(end)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        begin = int(child.stdout.readline())
        image = ProcessImage(child.pid, lambda: 0)
        image.look()
        image.read_code()
        child.communicate("\n")
    stamp = FileStamp.of(library.stat())
    pieces = [change for change in image.changes() if begin <= change.address < begin + 3 * 4096]
    told = [(change.event, change.address - begin, change.path, change.offset) for change in pieces]
    begins = sorted({0, first * 4096, end * 4096} - {3 * 4096})
    expected = [("map", begin, str(library), begin) for begin in begins]
    stamps: list[FileStamp | None] = [stamp for _ in begins]
    copied = begins.index(first * 4096)
    if written:
        expected[copied] = ("code", first * 4096, "", 0)
        stamps[copied] = None
    assert told == expected
    assert pieces[copied].code[:1] == written
    assert [change.stamp for change in pieces] == stamps


def test_code_without_a_file_is_read_from_the_process_itself() -> None:
    program = (
        "import ctypes, mmap\n"
        "code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)\n"
        "code[:3] = b'\\x90\\x90\\xc3'\n"
        "print(ctypes.addressof(ctypes.c_char.from_buffer(code)), flush=True)\n"
        "input()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        address = int(child.stdout.readline())
        image = ProcessImage(child.pid, lambda: 0)
        image.look()
        image.read_code()
        child.communicate("\n")
    changes = list(image.changes())
    assert any(change.path == str(Path(sys.executable).resolve()) for change in changes)
    (generated,) = [change for change in changes if change.address <= address < change.address + change.size_bytes]
    assert generated.event == "code"
    assert generated.code[address - generated.address :][:3] == b"\x90\x90\xc3"
    (vdso,) = [change for change in changes if change.path == "[vdso]"]
    assert vdso.event == "map"
    assert b"__vdso_clock_gettime" in vdso.code
