"""Code that is written over while it is recorded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from permille.controller.domain import generated_code
from permille.controller.domain.generated_code import LINE, NOTHING, PAGE, GeneratedCode
from pytest import MonkeyPatch

FIRST, SECOND = b"\x90" * LINE, b"\xcc" * LINE


def page(*lines: bytes) -> bytes:
    return b"".join(lines).ljust(PAGE, b"\0")


def at(code: GeneratedCode, tsc: int) -> bytes:
    ((begin, found),) = code.at(0, PAGE, tsc)
    assert begin == 0
    return found


def looked(*pages: bytes) -> GeneratedCode:
    """One page as it was at 10, 20, ..."""
    code = GeneratedCode()
    for number, stood in enumerate(pages, 1):
        code.take(0, stood, number * 10)
    return code


def test_what_was_written_over_something_is_there_from_the_look_on_that_found_it() -> None:
    code = looked(page(FIRST), page(FIRST), page(SECOND))
    assert [at(code, tsc) for tsc in (0, 29, 30, 99)] == [page(FIRST)] * 2 + [page(SECOND)] * 2
    assert list(code.later()) == [(30, 0, PAGE)]


def test_what_was_written_where_nothing_stood_is_as_if_it_had_always_been_there() -> None:
    code = looked(NOTHING, page(FIRST), page(FIRST, b"", SECOND))
    assert at(code, 0) == page(FIRST, b"", SECOND)
    assert not list(code.later())


def test_both_may_happen_in_one_page() -> None:
    code = looked(page(FIRST), page(SECOND, FIRST))
    assert [at(code, tsc) for tsc in (0, 20)] == [page(FIRST, FIRST), page(SECOND, FIRST)]


def test_a_patch_of_zeros_is_one_of_code() -> None:
    call, patched = page(b"\xe8\0\0\0\0\xc3"), page(b"\xe8\1\2\3\4\xc3")
    assert [at(looked(call, patched), tsc) for tsc in (0, 20)] == [call, patched]


def test_pages_side_by_side_that_change_at_once_are_one_change() -> None:
    code = GeneratedCode()
    code.take(0, page(FIRST) * 4, 10)
    code.take(0, page(SECOND) * 2 + page(FIRST) + page(SECOND), 20)
    assert list(code.later()) == [(20, 0, 2 * PAGE), (20, 3 * PAGE, 4 * PAGE)]


def test_what_was_never_read_is_not_known() -> None:
    code = GeneratedCode()
    code.take(PAGE, page(FIRST), 10)
    assert [begin for begin, _ in code.at(0, 3 * PAGE, 0)] == [PAGE]


def test_a_child_has_what_its_parent_had_until_its_own_is_read() -> None:
    parent, child = looked(page(FIRST), page(SECOND)), GeneratedCode()
    child.inherit(parent)
    assert at(child, 0) == page(SECOND)
    child.take(0, page(FIRST), 30)
    assert (at(child, 30), at(parent, 30)) == (page(FIRST), page(SECOND))


def test_of_what_is_written_over_again_and_again_the_newest_is_kept(monkeypatch: MonkeyPatch) -> None:
    monkeypatch.setattr(generated_code, "MOST_REPLACED", 2)
    code = looked(*(page(bytes([byte]) * LINE) for byte in range(1, 6)))
    assert list(code.later()) == [(40, 0, PAGE), (50, 0, PAGE)]
    assert at(code, 0) == page(b"\3" * LINE)


@given(st.lists(st.lists(st.sampled_from((b"\0" * LINE, FIRST, SECOND)), max_size=6), min_size=1, max_size=6))
def test_each_look_finds_what_stood_there_unless_nothing_did(looks: list[list[bytes]]) -> None:
    pages = [page(*lines) for lines in looks]
    code = looked(*pages)
    for number, stood in enumerate(pages, 1):
        found = at(code, number * 10)
        lines = (slice(offset, offset + LINE) for offset in range(0, PAGE, LINE))
        assert all(found[line] == stood[line] for line in lines if any(stood[line]))
    assert at(code, len(pages) * 10) == pages[-1]
