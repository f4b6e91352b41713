"""What waits on every node takes little memory: it does not load what it does not need for waiting."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from permille.mesh.certs import create_authority, issue_service
from permille.mesh.discovery import wait_for
from permille.mesh.embedded_etcd import EmbeddedEtcd
from permille.mesh.etcd import Etcd

# Each is 2 to 60 MB: tables, object stores, TLS, traces, reflection, coloured terminals, symbols, a compiler.
HEAVY = {
    "bcc", "boto3", "botocore", "cryptography", "deltalake", "duckdb", "elftools", "greenlet",
    "grpc_reflection.v1alpha", "kopf", "kubernetes", "numpy", "opentelemetry", "pandas", "pyarrow", "pygments", "rich",
    "urllib3",
}  # fmt: skip
# What a controller may have while it waits: design note 10.
RESIDENT_BYTES = 64 << 20
PATIENCE_S = 60.0
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


@pytest.mark.parametrize("store", [[], ["--store", "s3://bucket?endpoint=http://127.0.0.1:9"]], ids=["folder", "s3"])
@pytest.mark.parametrize("service", ["controller", "allocator"])
async def test_what_waits_on_every_node_has_loaded_nothing_heavy(
    service: str, store: list[str], etcd_server: EmbeddedEtcd, tmp_path: Path
) -> None:
    command = [
        sys.executable,
        "-c",
        SERVE,
        service,
        "--state-dir",
        str(tmp_path),
        "--etcd",
        etcd_server.endpoint,
        *store,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    loaded = set(json.loads(done.stdout))
    assert {"grpc", "permille"} <= loaded
    assert loaded & HEAVY == set()
    assert ("permille.mesh.store.s3" in loaded) == (service == "controller" and store != [])


async def at_rest(process: psutil.Process) -> None:
    """Until it has used no processor time for a second, which is counted in steps of 10 ms."""
    before, now = None, process.cpu_times()[:2]
    while before != now:
        await asyncio.sleep(1)
        before, now = now, process.cpu_times()[:2]


def secured(folder: Path) -> list[str]:
    """Flags of a controller that speaks TLS alone, as in a cluster."""
    create_authority(folder)
    issue_service(folder, ["controller"], node="n1")
    return ["--tls-ca", f"{folder}/ca.crt", "--tls-cert", f"{folder}/n1.crt", "--tls-key", f"{folder}/n1.key"]


@pytest.mark.parametrize("kind", ["plain, folder", "plain, s3", "tls, folder", "tls, s3"])
async def test_a_controller_that_waits_is_as_small_as_promised(
    kind: str, etcd_server: EmbeddedEtcd, etcd: Etcd, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    way, _, store = kind.partition(", ")
    url = request.getfixturevalue("s3_url") if store == "s3" else (tmp_path / "store").as_uri()
    program = str(Path(sys.executable).with_name("permille-controller"))
    command = [program, "--state-dir", str(tmp_path), "--etcd", etcd_server.endpoint, "--node", "n1", "--store", url]
    command += secured(tmp_path / "certificates") if way == "tls" else []
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as started:
        try:
            await wait_for(etcd, "controller", instance="n1", timeout_s=PATIENCE_S)
            controller = psutil.Process(started.pid)
            async with asyncio.timeout(PATIENCE_S):
                await at_rest(controller)
            resident = controller.memory_info().rss
        finally:
            started.terminate()
    print(f"a controller that waits has, {kind}, {resident / 1e6:.1f} MB resident")
    assert resident <= RESIDENT_BYTES
