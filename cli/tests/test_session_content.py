"""What an imported session says of the recording that it was made of."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from permille.cli.session_import.session_content import session_content
from permille.ptcore import Capture

from .test_pt import reference

# As perf is asked for them: `notnt`, `noretcomp`.
INTEL_PT, WITHOUT_TNT = 6, 1 << 55 | 1 << 11


@pytest.mark.parametrize("without_tnt", [False, True])
def test_a_session_says_that_conditional_branches_were_not_traced(tmp_path: Path, *, without_tnt: bool) -> None:
    data = bytearray(reference("perf/perf.data.intel_pt-4.14").read_bytes())
    # Of the head the place of the events' attributes: each begins with type, size and config.
    (at,) = struct.unpack_from("<Q", data, 24)
    kind, _, config = struct.unpack_from("<IIQ", data, at)
    assert kind == INTEL_PT
    struct.pack_into("<Q", data, at + 8, config | WITHOUT_TNT if without_tnt else config)
    file = tmp_path / "perf.data"
    file.write_bytes(data)
    content = session_content(Capture(str(file)), file, tmp_path / "code", lambda *_: None)
    assert content.manifest["pt"].get("without_tnt", False) == without_tnt
