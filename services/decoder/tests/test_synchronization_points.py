"""How many PSBs a segment has, wherever it is decoded."""

from __future__ import annotations

import pytest
from permille.ptcore import Binary, Image, PtConfig, decode, decode_threads

from .small_program import Program

PSB = bytes.fromhex("0282" * 8)
CONFIG = PtConfig(6, 94, 3, 0, (0, 0), 0)


def image_of(program: Program) -> Image:
    image = Image()
    image.map(0, program.address, program.size, program.offset, Binary(str(program.path)), "small")
    return image


@pytest.mark.parametrize(
    ("damage", "more"),
    [
        (b"", 0),
        (PSB[:8] + PSB + b"\x05", 1),
        (PSB + PSB[:10], 1),
        (b"\x05" + PSB + b"\x05", 1),
        (b"\x05" + PSB[:10], 0),
    ],
)
def test_each_psb_is_counted_once_also_in_what_is_damaged(program: Program, damage: bytes, more: int) -> None:
    """However many threads ran on the core: a flow that was lost may read one several times."""
    run, image = program.packets(), image_of(program)
    damaged = run[:-20] + damage + run[-20:]
    stream = run + damaged + run
    (alone,) = decode_threads([(stream, 4, [(0, 7, 70, 0, 0, 0)], True)], {7: image}, CONFIG).values()
    turns = [(0, 7, 70, 0, 0, 0), (len(run), 7, 71, 0, 0, 0)]
    divided = decode_threads([(stream, 4, turns, True)], {7: image}, CONFIG)
    assert decode(stream, image, CONFIG, [(0, 0)]).stats["psb"] == alone.stats["psb"] == 3 + more
    assert {tid: told.stats["psb"] for (_, _, tid), told in divided.items()} == {70: 1, 71: 2 + more}
