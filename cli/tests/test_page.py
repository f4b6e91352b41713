"""The HTML report in a real browser, without a network."""

from __future__ import annotations

import html
import json
import re
import shutil
import struct
import subprocess
import zlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from permille.api.decoder.v1 import decoder_pb2
from permille.cli.html_page import MOST_LEVELS, PageParts, read_page_parts, template, write_page
from permille.cli.rendering.report import InlinedRow, Order

from .conftest import Mesh
from .test_report import REPORT, function

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
WIDTH, HEIGHT = 1200, 800


def browse(page: Path, view: str, *options: str) -> subprocess.CompletedProcess[str]:
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    return subprocess.run(
        [
            CHROMIUM, "--headless", "--no-sandbox", "--hide-scrollbars", f"--window-size={WIDTH},{HEIGHT}",
            "--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--virtual-time-budget=20000",
            # Whatever it would want to load from elsewhere fails, and says so on the console.
            "--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr", "--force-color-profile=srgb",
            f"--user-data-dir={page.parent / 'chromium'}", *options, f"{page.as_uri()}#{view}",
        ],
        capture_output=True, text=True, timeout=180, check=True,
    )  # fmt: skip


def console(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in done.stderr.splitlines() if ":CONSOLE" in line]


def pixels(png: bytes) -> list[bytes]:
    """The rows of an 8-bit RGB or RGBA picture (PNG specification, filters 0 to 4), 3 bytes a pixel."""
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    width, height, depth, colour = struct.unpack(">IIBB", png[16:26])
    assert (depth, colour in (2, 6)) == (8, True)
    step = 3 if colour == 2 else 4
    data, offset = b"", 8
    while offset < len(png):
        (length,) = struct.unpack(">I", png[offset : offset + 4])
        if png[offset + 4 : offset + 8] == b"IDAT":
            data += png[offset + 8 : offset + 8 + length]
        offset += 12 + length
    raw, line, rows = zlib.decompress(data), width * step, []
    above = bytearray(line)
    for row in range(height):
        kind = raw[row * (line + 1)]
        now = bytearray(raw[row * (line + 1) + 1 : (row + 1) * (line + 1)])
        for at in range(line):
            left = now[at - step] if at >= step else 0
            corner = above[at - step] if at >= step else 0
            now[at] = (now[at] + _predicted(kind, left, above[at], corner)) & 0xFF
        rows.append(bytes(b for at, b in enumerate(now) if at % step < 3))
        above = now
    return rows


def _predicted(kind: int, left: int, up: int, corner: int) -> int:
    if kind == 4:
        distance = {value: abs(left + up - corner - value) for value in (left, up, corner)}
        return next(value for value in (left, up, corner) if distance[value] == min(distance.values()))
    return (0, left, up, (left + up) // 2)[kind]


@pytest.fixture(scope="module")
def page(mesh: Mesh, session: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("page") / "report.html"
    mesh.run("report", session, "--html", file)
    return file


@pytest.mark.parametrize("command", [("report", "--html"), ("export", "--format", "folded", "--output")])
def test_a_file_that_is_written_is_named_on_one_line(
    mesh: Mesh, session: str, tmp_path: Path, command: tuple[str, ...]
) -> None:
    told = mesh.run(command[0], session, *command[1:], tmp_path / "a[red]\nb").stdout
    assert told.startswith(f"wrote {tmp_path}/a[red]\\x0ab") and told.count("\n") == 1


def test_the_tables_are_in_the_document(page: Path) -> None:
    done = browse(page, "functions", "--dump-dom")
    rows = re.findall(r"<tr>(.*?)</tr>", done.stdout.partition('id="function-table"')[2].partition("</table>")[0])
    names = {re.sub("<[^>]*>", "", row.partition("</td>")[0]) for row in rows}
    assert any(name.startswith("inner_work") for name in names)
    assert any(name.startswith("outer_work") for name in names)
    assert "back end" in done.stdout
    assert console(done) == []


def test_the_flame_graph_is_drawn_from_the_session(page: Path, tmp_path: Path) -> None:
    picture = tmp_path / "picture.png"
    done = browse(page, "pictures", f"--screenshot={picture}")
    told = "\n".join(console(done))
    assert "Importing as speedscope json file" in told
    assert "rror" not in told
    assert "Refused" not in told
    rows = pixels(picture.read_bytes())
    assert len(rows) == HEIGHT
    # Frames have pastel colours, the page around them none.
    coloured = {
        row[at : at + 3]
        for row in rows[HEIGHT // 4 :]
        for at in range(0, 3 * WIDTH, 3)
        if max(row[at : at + 3]) - min(row[at : at + 3]) > 20
    }
    assert len(coloured) >= 2


def recursion(levels: int) -> bytes:
    """One thread that calls itself, in speedscope's format."""
    events = [{"type": "O", "at": at, "frame": 0} for at in range(levels)]
    events += [{"type": "C", "at": levels + at, "frame": 0} for at in range(levels)]
    thread = {"type": "evented", "name": "t", "unit": "nanoseconds", "startValue": 0, "endValue": 2 * levels}
    return json.dumps(
        {
            "$schema": "https://www.speedscope.app/file-format-schema.json",
            "shared": {"frames": [{"name": "again"}]},
            "profiles": [thread | {"events": events}],
        }
    ).encode()


def alert(dom: str) -> str | None:
    """What the page says of a viewer that failed."""
    told = re.search(r'<p id="viewer-failed" role="alert"( hidden="")?>(.*?)</p>', dom)
    assert told is not None
    return None if told[1] else html.unescape(told[2])


def cells(dom: str, table: str) -> list[list[str]]:
    inside = dom.partition(f'id="{table}"')[2].partition("</table>")[0]
    rows = (re.findall(r"<td.*?>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", inside))
    return [row for row in rows if row]


@pytest.mark.parametrize(("order", "first"), [(Order.SELF, "worker"), (Order.CALLS, "often")])
def test_functions_are_sorted_by_what_was_asked_for(tmp_path: Path, order: Order, first: str) -> None:
    file = tmp_path / "report.html"
    functions = [replace(function("worker", 90), calls=1), replace(function("often", 10), calls=50)]
    write_page(file, replace(REPORT, functions=functions), PageParts(b"", 0), order)
    dom = browse(file, "functions", "--dump-dom").stdout
    assert cells(dom, "function-table")[0][0].startswith(first)
    head = dom.partition('id="function-table"')[2].partition("</thead>")[0]
    assert re.findall(r'aria-sort="descending"><button>(.*?)<', head) == [
        {"self": "self instructions", "calls": "calls"}[order]
    ]


def test_categories_are_summed_and_inlined_functions_listed_where_they_are_known(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    function = replace(REPORT.functions[0], function=5, name="outer", category="pricing", self_instructions=40)
    known = replace(REPORT, functions=[function], inlined=[InlinedRow(5, "probe > hash", 10)])
    write_page(file, known, PageParts(b"", 0))
    dom = browse(file, "inlined", "--dump-dom").stdout
    assert [row[0] for row in cells(dom, "category-table")] == ["pricing"]
    assert cells(dom, "inlined-table") == [["outer", "probe &gt; hash", "10", "25.0 %"]]
    write_page(file, replace(known, inlined=None), PageParts(b"", 0))
    assert re.search('data-view="inlined"[^>]* hidden=""', browse(file, "functions", "--dump-dom").stdout)


def test_what_is_as_deep_as_the_page_asks_for_is_drawn_and_what_cannot_be_is_told(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    write_page(file, REPORT, PageParts(recursion(MOST_LEVELS), 0))
    done = browse(file, "pictures", "--dump-dom")
    assert "Importing as speedscope json file" in "\n".join(console(done))
    assert "rror" not in "\n".join(console(done)) and alert(done.stdout) is None
    write_page(file, REPORT, PageParts(recursion(50_000), 0))
    told = alert(browse(file, "pictures", "--dump-dom").stdout)
    assert told is not None and "Maximum call stack size exceeded" in told and "--max-calls" in told


async def test_calls_that_are_not_in_the_pictures_are_told_beside_them(tmp_path: Path) -> None:
    asked = []

    class Client:
        async def decoder(self) -> Client:
            return self

        async def Export(self, request: Any) -> AsyncIterator[Any]:  # noqa: N802
            asked.append(request)
            yield decoder_pb2.ExportResponse(data=recursion(3))
            yield decoder_pb2.ExportResponse(omitted_calls=1_440_448, deeper_calls=7_000)

    parts = await read_page_parts(Client(), REPORT, 5)  # type: ignore[arg-type]
    assert [(request.max_calls, request.max_depth) for request in asked] == [(5, MOST_LEVELS)]
    write_page(tmp_path / "report.html", REPORT, parts)
    dom = browse(tmp_path / "report.html", "pictures", "--dump-dom").stdout
    notes = dom.partition('<ul id="picture-notes"')[2].partition("</ul>")[0]
    assert "1,440,448 short calls are left out of the pictures" in notes and "--max-calls 0" in notes
    assert "7,000 calls below 1,000 levels" in notes


def test_the_share_that_was_lost_is_of_what_was_executed(tmp_path: Path) -> None:
    write_page(tmp_path / "report.html", REPORT, PageParts(b"{}", 0))
    dom = browse(tmp_path / "report.html", "losses", "--dump-dom").stdout
    assert "256.0 KiB of trace are lost: 20.0 % of all." in dom
    assert "256.0 KiB (20.0 %)" in dom


def test_losses_have_their_own_view(page: Path) -> None:
    dom = browse(page, "losses", "--dump-dom").stdout
    assert re.search(r'<section id="view-functions" hidden', dom)
    assert re.search(r'<section id="view-losses">', dom)


def test_the_page_asks_nobody_for_anything(page: Path) -> None:
    outside = page.read_text().partition('id="profile">')[0]
    assert re.findall(r'(?:src|href)="(?!data:)[^"]*"', outside) == []
    assert "default-src 'none'" in outside
    assert "@import" not in outside


def test_the_data_can_be_read_by_programs(page: Path) -> None:
    data = page.read_text().partition('<script type="application/json" id="data">')[2].partition("</script>")[0]
    assert {row["name"] for row in json.loads(data)["functions"]} >= {"inner_work", "outer_work"}


def test_the_template_carries_the_licenses() -> None:
    assert "MIT License" in template()
    assert "SIL OPEN FONT LICENSE" in template()
