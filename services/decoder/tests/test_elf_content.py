"""Of two files of the same build the one with more is known: what is mapped, then symbols and debug information."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from permille.decoder.domain.elf_content import ElfContent, elf_content
from permille.mesh.errors import InvalidArgument

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program"
    command = ["gcc", "-g", "-Wl,--build-id=0x0123456789abcdef", "-x", "c", "-o"]
    subprocess.run([*command, path, "-"], input="int main(void) { return 0; }\n", text=True, check=True)
    return path


def changed(program: Path, *options: str) -> Path:
    path = program.with_suffix(".changed")
    subprocess.run(["objcopy", *options, program, path], check=True)
    return path


def cut(program: Path, size: int) -> Path:
    path = program.with_suffix(".cut")
    path.write_bytes(program.read_bytes()[:size])
    return path


def test_a_program_with_symbols_and_debug_information_has_all(program: Path) -> None:
    content = elf_content(program)
    assert (content.missing_bytes, content.is_debug_file) == (0, False)
    assert content.has_all(debug=False)
    content.require_whole()


@pytest.mark.parametrize("option", ["--strip-all", "--strip-debug"])
def test_a_stripped_program_is_whole_and_the_unstripped_one_adds_to_it(program: Path, option: str) -> None:
    whole, stripped = elf_content(program), elf_content(changed(program, option))
    stripped.require_whole()
    assert not stripped.has_all(debug=False)
    assert whole.adds_to(stripped, debug=False)
    assert not stripped.adds_to(whole, debug=False)
    assert not whole.adds_to(whole, debug=False)


def test_what_objcopy_keeps_for_debugging_is_no_program(program: Path) -> None:
    debug = elf_content(changed(program, "--only-keep-debug"))
    assert debug.is_debug_file
    assert debug.has_all(debug=True)
    assert not debug.has_all(debug=False)
    stripped = elf_content(changed(program, "--strip-all"))
    assert stripped.adds_to(debug, debug=False)
    assert not debug.adds_to(stripped, debug=False)


def test_a_program_that_ends_within_what_is_mapped_is_cut_off(program: Path) -> None:
    content = elf_content(cut(program, 1000))
    assert content.missing_bytes > 0
    with pytest.raises(InvalidArgument, match="cut off") as refused:
        content.require_whole()
    assert refused.value.help
    assert elf_content(changed(program, "--strip-all")).adds_to(content, debug=False)


def test_a_program_that_ends_behind_what_is_mapped_is_whole_and_has_no_symbols(program: Path) -> None:
    content = elf_content(cut(program, program.stat().st_size - 100))
    assert content == ElfContent(0, is_debug_file=False, symbols=0, has_debug_information=False)
    assert elf_content(program).adds_to(content, debug=False)


def test_of_debug_files_the_contents_do_not_count(program: Path) -> None:
    whole, debug = elf_content(program), elf_content(changed(program, "--only-keep-debug"))
    assert not whole.adds_to(debug, debug=True)
    symbols_alone = elf_content(changed(program, "--strip-debug"))
    assert debug.adds_to(symbols_alone, debug=True)


def test_neither_adds_to_the_other_where_each_has_what_the_other_has_not(program: Path) -> None:
    symbols = ElfContent(0, is_debug_file=False, symbols=9, has_debug_information=False)
    information = ElfContent(0, is_debug_file=False, symbols=0, has_debug_information=True)
    assert not symbols.adds_to(information, debug=False)
    assert not information.adds_to(symbols, debug=False)
