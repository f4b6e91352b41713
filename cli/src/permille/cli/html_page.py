"""Reads what the HTML report needs, and writes it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from permille.api.decoder.v1 import decoder_pb2
from permille.cli.client import MeshClient, parts
from permille.cli.output_file import write_file
from permille.cli.rendering.report import Report
from permille.cli.rendering.report_page import report_page
from permille.mesh.errors import FailedPrecondition


@dataclass(frozen=True)
class PageParts:
    """The calls in speedscope's format; `omitted_calls` are not in it."""

    profile: bytes
    omitted_calls: int


async def read_page_parts(client: MeshClient, report: Report, max_calls: int) -> PageParts:
    """At most `max_calls` calls (0: all), the longest. Raises what the export raises."""
    decoder = await client.decoder()
    request = decoder_pb2.ExportRequest(
        session=report.session.name, format=decoder_pb2.FORMAT_SPEEDSCOPE, max_calls=max_calls
    )
    profile = bytearray()
    omitted = 0
    async for part in parts(decoder.Export(request)):
        profile += part.data
        omitted = part.omitted_calls or omitted
    return PageParts(bytes(profile), omitted)


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


def write_page(file: Path | None, report: Report, page_parts: PageParts) -> int:
    """Writes the page; its size in bytes. None: to standard output. Raises what `write_file` raises."""
    page = report_page(template(), report, page_parts.profile).encode()
    if file is not None:
        return write_file(file, [page])
    sys.stdout.buffer.write(page)
    sys.stdout.buffer.flush()
    return len(page)
