"""What waits on every node takes little memory: it does not load what it does not need for waiting."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from permille.mesh.embedded_etcd import EmbeddedEtcd

# Each is 2 to 60 MB: tables, object stores, TLS, traces, reflection, coloured terminals, symbols, a compiler.
HEAVY = {
    "bcc", "boto3", "botocore", "cryptography", "deltalake", "duckdb", "elftools", "greenlet",
    "grpc_reflection.v1alpha", "kopf", "kubernetes", "numpy", "opentelemetry", "pandas", "pyarrow", "pygments", "rich",
}  # fmt: skip
# The service as it is, which ends when it has begun to serve.
SERVE = """
import importlib, json, sys
main = importlib.import_module(f"permille.{sys.argv.pop(1)}.main")
from permille.mesh import server
def run(service, config, setup, **options):
    async def begin_and_end(context):
        await setup(context)
        context.end(0)
    return server.run(service, config, begin_and_end, **options)
main.run = run
try:
    main.main()
finally:
    print(json.dumps(sorted(sys.modules)))
"""


@pytest.mark.parametrize("service", ["controller", "allocator"])
async def test_what_waits_on_every_node_has_loaded_nothing_heavy(
    service: str, etcd_server: EmbeddedEtcd, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", SERVE, service, "--state-dir", str(tmp_path), "--etcd", etcd_server.endpoint]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    loaded = set(json.loads(done.stdout))
    assert {"grpc", "permille"} <= loaded
    assert loaded & HEAVY == set()
