"""`make demo`: a real redis-server under load, half a second of it recorded, decoded and shown.

Everything goes through the `permille` command, as a user would type it; the commands are printed as they run.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from workload import load, mesh, redis

OUT = Path("out")


def main() -> int:
    """Exit code 0 when the report and its HTML page are there."""
    OUT.mkdir(exist_ok=True)
    state = Path(tempfile.mkdtemp(prefix="permille-demo-"))
    os.environ["PERMILLE_STATE_DIR"] = str(state)
    try:
        with mesh():
            with redis() as (server, port), load(port):
                permille("trace", "--pid", str(server.pid), "--for", "500ms")
            permille("report", "latest")
            permille("report", "latest", "--html", str(OUT / "demo.html"))
            permille("export", "latest", "--format", "perfetto", "-o", str(OUT / "demo.perfetto-trace"))
            permille(
                "query", "SELECT name, sum(calls) AS calls FROM functions GROUP BY name ORDER BY calls DESC LIMIT 5"
            )
    except subprocess.CalledProcessError as error:
        print(f"\n{shlex.join(error.cmd)} ended with {error.returncode}; the logs are in {state}", file=sys.stderr)
        return 1
    shutil.rmtree(state, ignore_errors=True)
    print(f"\nOpen {OUT / 'demo.html'} in a browser; it needs no network.")
    return 0


def permille(*arguments: str) -> None:
    print(f"\n$ permille {shlex.join(arguments)}", flush=True)
    subprocess.run(["permille", *arguments], check=True)


if __name__ == "__main__":
    sys.exit(main())
