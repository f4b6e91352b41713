"""The chart's three members of etcd, started as it says, with certificates as docs/kubernetes.md makes them."""

from __future__ import annotations

import re
import subprocess
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
import urllib3
from permille.mesh import certs
from permille.mesh.config import MeshConfig
from permille.mesh.embedded_etcd import EmbeddedEtcd, etcd_binary
from permille.mesh.errors import Unavailable
from permille.mesh.etcd import Etcd, connect

from tests.conftest import PATIENCE_S, await_true, child, free_port
from tests.kubernetes.chart import KMOD, NAMESPACE, Helm, pods

pytestmark = pytest.mark.slow
MEMBERS = [f"permille-etcd-{number}" for number in range(3)]


def issued(folder: Path) -> Path:
    """A folder as the secret is mounted."""
    certs.create_authority(folder)
    names = [f"{name}.permille-etcd.{NAMESPACE}.svc" for name in MEMBERS]
    made = certs.issue_service(folder, ["etcd"], node="etcd", hosts=[f"permille-etcd.{NAMESPACE}.svc", *names])
    made.certificate.rename(folder / "tls.crt")
    made.key.rename(folder / "tls.key")
    return folder


def here(argument: str, member: str, folder: Path, ports: dict[tuple[str, str], int]) -> str:
    """An argument of a container on this machine: every member has ports of its own instead of an address."""
    argument = argument.replace("$(POD_NAME)", member).replace("/etc/permille/etcd", str(folder))
    argument = argument.replace("/var/lib/etcd/data", str(folder / member)).replace("0.0.0.0", "127.0.0.1")
    argument = re.sub(
        rf"(permille-etcd-\d)\.permille-etcd\.{NAMESPACE}\.svc:(\d+)",
        lambda found: f"localhost:{ports[found[1], found[2]]}",
        argument,
    )
    return re.sub(r"(127\.0\.0\.1):(\d+)", lambda found: f"{found[1]}:{ports[member, found[2]]}", argument)


async def test_three_members_serve_those_with_a_certificate(helm: Helm, tmp_path: Path) -> None:
    (container,) = pods(helm.rendered(KMOD))["permille-etcd"]["spec"]["containers"]
    folder = issued(tmp_path / "certs")
    ports = {(member, port): free_port() for member in MEMBERS for port in ("2379", "2380", "2381")}
    with ExitStack() as ended:
        for member in MEMBERS:
            log = ended.enter_context((tmp_path / f"{member}.log").open("w"))
            arguments = [here(argument, member, folder, ports) for argument in container["args"]]
            ended.enter_context(child([str(etcd_binary()), *arguments], stdout=log, stderr=log))
        for member in MEMBERS:
            path = container["readinessProbe"]["httpGet"]["path"]
            url = f"http://127.0.0.1:{ports[member, '2381']}{path}"
            await_true(partial(healthy, url), PATIENCE_S, url)
        first, _, last = (f"localhost:{ports[member, '2379']}" for member in MEMBERS)
        writer = client(first, folder)
        await writer.put("/permille/v1/here", b"yes")
        await writer.close()
        reader = client(last, folder)
        found = await reader.get("/permille/v1/here")
        assert found is not None and found.value == b"yes"
        await reader.close()
        assert await kept_by_a_backup(last, folder)
        stranger = client(first, issued(tmp_path / "stranger"), authority=folder)
        with pytest.raises(Unavailable):
            await stranger.get("/permille/v1/here")
        await stranger.close()


async def kept_by_a_backup(endpoint: str, folder: Path) -> bool:
    """Saves and restores as docs/operations.md says."""
    tool, backup, restored = (
        etcd_binary().parent,
        folder / "permille.db",
        EmbeddedEtcd(folder / "restored", durable=False),
    )
    names = {"--cacert": "ca.crt", "--cert": "tls.crt", "--key": "tls.key"}
    tls = [f"{flag}={folder / name}" for flag, name in names.items()]
    saving = ["etcdctl", f"--endpoints=https://{endpoint}", *tls, "snapshot", "save"]
    restoring = ["etcdutl", "snapshot", "restore", f"--data-dir={restored.folder / 'data'}"]
    for command, *arguments in (saving, restoring):
        subprocess.run([tool / command, *arguments, backup], check=True, capture_output=True)
    await restored.start()
    reader = connect(MeshConfig(etcd=(restored.endpoint,), etcd_timeout_s=60))
    found = await reader.get("/permille/v1/here")
    await reader.close()
    await restored.stop()
    return found is not None and found.value == b"yes"


def healthy(url: str) -> bool:
    """What the readiness probe asks."""
    try:
        return urllib3.PoolManager(retries=False).request("GET", url, timeout=60.0).status == 200
    except urllib3.exceptions.HTTPError:
        return False


def client(endpoint: str, folder: Path, *, authority: Path | None = None) -> Etcd:
    """With the certificate of a folder."""
    files = {
        "etcd_ca": (authority or folder) / "ca.crt",
        "etcd_cert": folder / "tls.crt",
        "etcd_key": folder / "tls.key",
    }
    return connect(MeshConfig(etcd=(endpoint,), etcd_timeout_s=60).model_copy(update=files))
