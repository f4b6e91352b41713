"""Reads what the HTML report needs, and writes it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from permille.api.decoder.v1 import decoder_pb2
from permille.cli.client import MeshClient, parts
from permille.cli.output_file import write_file
from permille.cli.rendering.report import Note, Order, Report
from permille.cli.rendering.report_page import report_page
from permille.mesh.errors import FailedPrecondition

# The viewer is recursive, and a browser's stack ends from 4,000 levels on; no screen shows as many.
MOST_LEVELS = 1000


@dataclass(frozen=True)
class PageParts:
    """The calls in speedscope's format, without the `omitted_calls`, which are short, and the `deeper_calls`."""

    profile: bytes
    omitted_calls: int
    deeper_calls: int = 0

    @property
    def notes(self) -> list[Note]:
        """What a reader of the pictures should know."""
        found = []
        if self.omitted_calls:
            text = f"{self.omitted_calls:,} short calls are left out of the pictures"
            found.append(Note(text, "--max-calls 0 keeps all"))
        if self.deeper_calls:
            text = f"{self.deeper_calls:,} calls below {MOST_LEVELS:,} levels are drawn as their callers' own"
            found.append(Note(text))
        return found


async def read_page_parts(client: MeshClient, report: Report, max_calls: int) -> PageParts:
    """At most `max_calls` calls (0: all), the longest. Raises what the export raises."""
    decoder = await client.decoder()
    request = decoder_pb2.ExportRequest(
        session=report.session.name,
        format=decoder_pb2.FORMAT_SPEEDSCOPE,
        max_calls=max_calls,
        max_depth=MOST_LEVELS,
    )
    profile = bytearray()
    omitted = deeper = 0
    async for part in parts(decoder.Export(request)):
        profile += part.data
        omitted = part.omitted_calls or omitted
        deeper = part.deeper_calls or deeper
    return PageParts(bytes(profile), omitted, deeper)


def template() -> str:
    """The page that `html/build` made. Raises `FailedPrecondition` when it was not built."""
    file = files("permille.cli") / "html" / "report.html"
    if not file.is_file():
        raise FailedPrecondition(
            "the template of the HTML report is not built",
            reason="TEMPLATE_MISSING",
            help="build it: `make setup`, or cli/html/build",
        )
    return file.read_text(encoding="utf-8")


def write_page(file: Path | None, report: Report, page_parts: PageParts, order: Order = Order.SELF) -> int:
    """Writes the page; its size in bytes. None: to standard output. Raises what `write_file` raises."""
    page = report_page(template(), report, page_parts.profile, page_parts.notes, order=order).encode()
    if file is not None:
        return write_file(file, [page])
    sys.stdout.buffer.write(page)
    sys.stdout.buffer.flush()
    return len(page)
