"""What is told of a table that cannot be read to its end."""

from __future__ import annotations

import pytest
from permille.decoder.domain.unread_table import unread_table


@pytest.mark.parametrize(
    "told",
    [
        "no such file: /store/tables/calls/day=2026-11-30/session_id=s1/part-0.parquet",
        "500 from http://s3/bucket/tables/calls/day=2026-11-30/session_id%3Ds1/part-0.parquet",
        "500 from http://s3/bucket/tables/calls/day%3D2026-11-30%2Fsession_id%3Ds1%2Fpart-0.parquet",
    ],
)
def test_a_file_is_named_however_its_path_is_told(told: str) -> None:
    error = unread_table(OSError(told))
    assert "its file day=2026-11-30/session_id=s1/part-0.parquet" in error.message
    assert "`permille report s1 --again`" in error.help
