"""From the end of a recording to the report: a redis-server that stays under load, traced for half a second."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from dataclasses import dataclass
from typing import Any

from figures import Figure, publish
from workload import load, mesh, redis, traced

ROUNDS = 5
MIB = 1 << 20


@dataclass(frozen=True)
class Round:
    """One session: sizes in MiB, times in seconds since the recording was over."""

    raw: float
    stored: float
    instructions: int
    decoded_s: float
    report_s: float
    decoder_s: float


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="permille-bench-") as state:
        os.environ["PERMILLE_STATE_DIR"] = state
        with mesh(), redis() as (server, port), load(port):
            rounds = [measured(server.pid) for _ in range(ROUNDS)]
    publish(
        "e2e",
        {
            "trace": Figure.of([r.raw for r in rounds], "MiB"),
            "instructions": Figure.of([r.instructions / 1e6 for r in rounds], "million"),
            "bytes per instruction": Figure.of([r.raw * MIB / r.instructions for r in rounds], "B"),
            "stored": Figure.of([r.stored / r.raw for r in rounds], "of raw"),
            "stop to decoded": Figure.of([r.decoded_s for r in rounds], "s"),
            "stop to decoded per MiB": Figure.of([r.decoded_s / r.raw for r in rounds], "s/MiB"),
            "stop to report": Figure.of([r.report_s for r in rounds], "s"),
            "stop to report per MiB": Figure.of([r.report_s / r.raw for r in rounds], "s/MiB"),
            "decoder's workers per MiB": Figure.of([r.decoder_s / r.raw for r in rounds], "s/MiB"),
        },
    )


def measured(pid: int) -> Round:
    session = traced(pid, "500ms")
    decoded = time.time()
    permille("report", session, "--json")
    reported = time.time()
    row = query(f"SELECT * FROM sessions WHERE session_id = '{session}'")
    decode_ms = query(f"SELECT sum(decode_ms) AS ms FROM segments WHERE session_id = '{session}'")["ms"]
    stopped = row["end_ns"] / 1e9
    return Round(
        raw=row["raw_bytes"] / MIB,
        stored=row["stored_bytes"] / MIB,
        instructions=row["instructions"],
        decoded_s=decoded - stopped,
        report_s=reported - stopped,
        decoder_s=decode_ms / 1e3,
    )


def query(sql: str) -> dict[str, Any]:
    row: dict[str, Any] = permille("query", sql, "--json")["rows"][0]
    return row


def permille(*arguments: str) -> Any:
    done = subprocess.run(["permille", *arguments], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


if __name__ == "__main__":
    main()
