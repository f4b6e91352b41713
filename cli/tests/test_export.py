"""What an export is asked for, and what is said of calls that are not in it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from permille.api.decoder.v1 import decoder_pb2
from permille.cli.commands import export
from permille.cli.session_list import SessionList
from typer.testing import CliRunner, Result

from .test_report import SESSION


class Decoder:
    """Keeps what it is asked for, and leaves calls out of everything."""

    def __init__(self) -> None:
        self.asked: list[decoder_pb2.ExportRequest] = []

    async def decoder(self) -> Decoder:
        return self

    async def Export(self, request: decoder_pb2.ExportRequest) -> AsyncIterator[decoder_pb2.ExportResponse]:  # noqa: N802
        self.asked.append(request)
        yield decoder_pb2.ExportResponse(data=b"main 1\n", file_name="s.folded")
        yield decoder_pb2.ExportResponse(omitted_calls=1_440_448, deeper_calls=7_000)


@pytest.fixture
def decoder(monkeypatch: pytest.MonkeyPatch) -> Decoder:
    client = Decoder()

    def in_mesh(_: object, work: Callable[[Any], Awaitable[Any]]) -> Any:
        async def run() -> Any:
            return await work(client)

        return asyncio.run(run())

    async def list_sessions(_: object) -> SessionList:
        return SessionList([SESSION])

    monkeypatch.setattr(export, "in_mesh", in_mesh)
    monkeypatch.setattr(export, "list_sessions", list_sessions)
    return client


@pytest.mark.parametrize("form", ["folded", "pprof", "perfetto", "speedscope", "csv"])
def test_that_there_is_nothing_to_show_is_told_where_calls_are_shown(
    decoder: Decoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    assert "has no calls" not in run(form, tmp_path / "file").stderr

    async def without_calls(_: object) -> SessionList:
        return SessionList([replace(SESSION, calls=0)])

    monkeypatch.setattr(export, "list_sessions", without_calls)
    told = run(form, tmp_path / "file").stderr
    assert (f"has no calls: in {SESSION.name} the program slept" in told) == (form != "csv")


def run(form: str, file: Path, *options: str) -> Result:
    done = CliRunner().invoke(export.app, ["--format", form, "-o", str(file), *options])
    assert done.exit_code == 0, done.output
    return done


@pytest.mark.parametrize(
    ("form", "options", "levels"),
    [
        ("folded", (), 1000),
        ("pprof", (), 1000),
        ("pprof", ("--max-depth", "0"), 0),
        ("folded", ("--max-depth", "7"), 7),
        ("perfetto", (), 0),
        ("speedscope", ("--max-depth", "7"), 7),
        ("csv", (), 0),
    ],
)
def test_profiles_have_the_outermost_levels_unless_others_are_asked_for(
    decoder: Decoder, tmp_path: Path, form: str, options: tuple[str, ...], levels: int
) -> None:
    run(form, tmp_path / "file", *options)
    assert [request.max_depth for request in decoder.asked] == [levels]


def test_calls_that_are_left_out_are_told_with_what_keeps_them(decoder: Decoder, tmp_path: Path) -> None:
    told = run("folded", tmp_path / "file").stderr
    assert "1,440,448 short calls are left out: --max-calls 0 keeps all" in told
    assert "7,000 calls below 1,000 levels are left out" in told and "--max-depth 0 keeps all" in told
    as_json = run("folded", tmp_path / "file", "--json")
    assert as_json.stderr == ""
    assert json.loads(as_json.stdout) == {
        "session": SESSION.name,
        "file": str(tmp_path / "file"),
        "size_bytes": 7,
        "omitted_calls": 1_440_448,
        "deeper_calls": 7_000,
    }
