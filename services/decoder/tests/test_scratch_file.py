"""Files of pieces that vanish with the process."""

from __future__ import annotations

from pathlib import Path

import pytest
from permille.decoder.domain.scratch_file import IN_MEMORY, ScratchFile
from permille.ptcore import Column

PIECE = bytes(range(256)) * (IN_MEMORY // 1024)


@pytest.mark.parametrize("pieces", [0, 1, 3, 4, 5, 9])
def test_the_pieces_come_back_one_behind_the_other(tmp_path: Path, pieces: int) -> None:
    file = ScratchFile(tmp_path)
    for number in range(pieces):
        file.write(Column(PIECE + bytes([number])))
    whole = b"".join(PIECE + bytes([number]) for number in range(pieces))
    assert file.size_bytes == len(whole)
    with file.whole() as read:
        assert read.read() == whole


def test_only_a_large_file_takes_room_in_its_folder(tmp_path: Path) -> None:
    file = ScratchFile(tmp_path / "away")
    for _ in range(4):
        file.write(Column(PIECE))
    with pytest.raises(FileNotFoundError):
        file.write(Column(b"1"))
