"""The chart's members of etcd, started as it says, with certificates as docs/kubernetes.md makes them."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest
import urllib3
from permille.mesh import certs
from permille.mesh.config import MeshConfig
from permille.mesh.embedded_etcd import EmbeddedEtcd, etcd_binary
from permille.mesh.errors import Unavailable
from permille.mesh.etcd import Etcd, connect

from tests.kubernetes.chart import KMOD, NAMESPACE, Helm, pods
from tests.processes import PATIENCE_S, await_true, child, free_port

pytestmark = pytest.mark.slow


def issued(folder: Path) -> Path:
    """A folder as the secret is mounted."""
    certs.create_authority(folder)
    names = [f"permille-etcd-{number}.permille-etcd.{NAMESPACE}.svc" for number in range(5)]
    made = certs.issue_service(folder, ["etcd"], node="etcd", hosts=[f"permille-etcd.{NAMESPACE}.svc", *names])
    made.certificate.rename(folder / "tls.crt")
    made.key.rename(folder / "tls.key")
    return folder


class Members:
    """So many of them, with their volumes in `root`, started as the chart says; `folder` has their certificate."""

    def __init__(self, helm: Helm, number: int, root: Path, folder: Path) -> None:
        values = {**KMOD, "etcd": {"bundled": {"replicas": number}}}
        (self._container,) = pods(helm.rendered(values))["permille-etcd"]["spec"]["containers"]
        self.names = [f"permille-etcd-{each}" for each in range(number)]
        self.root = root
        self._folder = folder
        self._ports = {(member, port): free_port() for member in self.names for port in ("2379", "2380", "2381")}

    @contextmanager
    def running(self) -> Iterator[None]:
        """Until the end of the block; all of them are healthy."""
        with ExitStack() as ended:
            for member in self.names:
                (self.root / member).mkdir(parents=True, exist_ok=True)
                log = ended.enter_context((self.root / f"{member}.log").open("a"))
                arguments = [self.here(argument, member) for argument in self._container["args"]]
                ended.enter_context(child([str(etcd_binary()), *arguments], stdout=log, stderr=log))
            for member in self.names:
                path = self._container["readinessProbe"]["httpGet"]["path"]
                url = f"http://127.0.0.1:{self._ports[member, '2381']}{path}"
                await_true(partial(healthy, url), PATIENCE_S, url)
            yield

    def address(self, member: str) -> str:
        """Where its clients find it."""
        return f"localhost:{self._ports[member, '2379']}"

    def here(self, argument: str, member: str) -> str:
        """An argument of a container on this machine: every member has ports of its own instead of an address."""
        argument = argument.replace("$(POD_NAME)", member).replace("/etc/permille/etcd", str(self._folder))
        argument = argument.replace("/var/lib/etcd", str(self.root / member)).replace("0.0.0.0", "127.0.0.1")
        argument = re.sub(
            rf"(permille-etcd-\d)\.permille-etcd\.{NAMESPACE}\.svc:(\d+)",
            lambda found: f"localhost:{self._ports[found[1], found[2]]}",
            argument,
        )
        return re.sub(r"(127\.0\.0\.1):(\d+)", lambda found: f"{found[1]}:{self._ports[member, found[2]]}", argument)


async def test_three_members_serve_those_with_a_certificate(helm: Helm, tmp_path: Path) -> None:
    folder = issued(tmp_path / "certs")
    members = Members(helm, 3, tmp_path / "members", folder)
    with members.running():
        first, _, last = (members.address(member) for member in members.names)
        await written(first, folder)
        assert await kept(last, folder)
        assert await kept_by_a_backup(last, folder)
        stranger = client(first, issued(tmp_path / "stranger"), authority=folder)
        with pytest.raises(Unavailable):
            await stranger.get("/permille/v1/here")
        await stranger.close()


@pytest.mark.parametrize("number", [1, 5])
async def test_another_number_of_members_has_what_the_former_ones_had(helm: Helm, tmp_path: Path, number: int) -> None:
    folder = issued(tmp_path / "certs")
    former, anew = (Members(helm, each, tmp_path / f"{each}-members", folder) for each in (3, number))
    with former.running():
        await written(former.address(former.names[0]), folder)
        saved(former.address(former.names[0]), folder, tmp_path / "permille.db")
    peers = {name: f"https://{name}.permille-etcd.{NAMESPACE}.svc:2380" for name in anew.names}
    cluster = ",".join(f"{name}={peer}" for name, peer in peers.items())
    with anew.running():
        assert not await kept(anew.address(anew.names[0]), folder)
        # As docs/operations.md says, while they run.
        for name, peer in peers.items():
            volume = anew.root / name
            own = ["--name", name, "--initial-cluster", cluster, "--initial-advertise-peer-urls", peer]
            arguments = [anew.here(argument, name) for argument in own] + ["--initial-cluster-token", "restored"]
            restored(tmp_path / "permille.db", volume / "restored", *arguments)
            (volume / "data").rename(volume / "empty")
            (volume / "restored").rename(volume / "data")
    with anew.running():
        for name in anew.names:
            assert await kept(anew.address(name), folder)


async def written(endpoint: str, folder: Path) -> None:
    writer = client(endpoint, folder)
    await writer.put("/permille/v1/here", b"yes")
    await writer.close()


async def kept(endpoint: str, folder: Path) -> bool:
    """Whether it has what was written."""
    reader = client(endpoint, folder)
    found = await reader.get("/permille/v1/here")
    await reader.close()
    return found is not None and found.value == b"yes"


def saved(endpoint: str, folder: Path, backup: Path) -> None:
    names = {"--cacert": "ca.crt", "--cert": "tls.crt", "--key": "tls.key"}
    tls = [f"{flag}={folder / name}" for flag, name in names.items()]
    etcdctl = [str(etcd_binary().with_name("etcdctl")), f"--endpoints=https://{endpoint}", *tls]
    subprocess.run([*etcdctl, "snapshot", "save", str(backup)], check=True, capture_output=True)


def restored(backup: Path, data: Path, *arguments: str) -> None:
    restoring = [str(etcd_binary().with_name("etcdutl")), "snapshot", "restore", str(backup), f"--data-dir={data}"]
    subprocess.run([*restoring, *arguments], check=True, capture_output=True)


async def kept_by_a_backup(endpoint: str, folder: Path) -> bool:
    """Saves and restores as docs/operations.md says."""
    backup, etcd = folder / "permille.db", EmbeddedEtcd(folder / "restored", durable=False)
    saved(endpoint, folder, backup)
    restored(backup, etcd.folder / "data")
    await etcd.start()
    reader = connect(MeshConfig(etcd=(etcd.endpoint,), etcd_timeout_s=60))
    found = await reader.get("/permille/v1/here")
    await reader.close()
    await etcd.stop()
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
