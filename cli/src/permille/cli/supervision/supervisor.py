"""etcd and the services of one machine: started in order, kept running, drained in order."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import sysconfig
from collections.abc import Callable, Sequence
from pathlib import Path

from permille.cli.heeded_signals import heeded
from permille.cli.supervision.events import Event, Happened
from permille.cli.supervision.private_etcd import PrivateEtcd
from permille.cli.supervision.readiness import until_serving
from permille.cli.supervision.supervised import Supervised
from permille.mesh.channels import Channels
from permille.mesh.config import MeshConfig
from permille.mesh.errors import FailedPrecondition, Unavailable
from permille.mesh.etcd import connect

SERVICES = ("allocator", "controller", "decoder", "coverage")
# Who only answers others drains after who asks them.
_DRAIN_ORDER = (("coverage",), ("controller", "decoder"), ("allocator",))
_GRACE_BEYOND_DRAIN_S = 5.0
# A service that ends so often before anything was ready will not come up by itself.
_HOPELESS = 3


class Supervisor:
    """`flags`: settings given on the command line, handed on to every service."""

    def __init__(self, config: MeshConfig, flags: Sequence[str], tell: Callable[[Event], None]) -> None:
        self._config = config
        self._tell = tell
        self._logs = config.state_dir / "logs"
        self._etcd = PrivateEtcd(config.state_dir / "etcd", tell) if not config.etcd else None
        self._flags = flags
        self._services = {
            name: Supervised(name, self._command(name, "127.0.0.1:0"), self._logs / f"{name}.log", self._noted)
            for name in SERVICES
        }
        # Set when a process was started of which nobody has said yet that it serves.
        self._begun = {name: asyncio.Event() for name in SERVICES}
        self._serving: set[str] = set()
        self._all_serving = asyncio.Event()
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()

    async def run(self, *, ready_timeout_s: float) -> None:
        """Until SIGINT, SIGTERM or SIGHUP; a second one kills.

        Raises `Unavailable` or `FailedPrecondition` when it does not come up; nothing is left running then.
        """
        with heeded(dict.fromkeys((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), self._asked_to_stop)):
            await self._run(ready_timeout_s)

    async def _run(self, ready_timeout_s: float) -> None:
        tasks: list[asyncio.Task[None]] = []
        try:
            if self._etcd is not None:
                await self._etcd.start(ready_timeout_s)
                tasks.append(asyncio.create_task(self._etcd.run()))
            tasks += [asyncio.create_task(service.run()) for service in self._services.values()]
            following = asyncio.create_task(self._follow())
            tasks.append(following)
            await self._until_ready(following, ready_timeout_s)
            await self._stop.wait()
        finally:
            await self._drain()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._tell(Event(Happened.STOPPED))

    def _command(self, name: str, listen: str) -> list[str]:
        return [*program(name), *self._flags, "--listen", listen]

    def _asked_to_stop(self) -> None:
        (self._hurry if self._stop.is_set() else self._stop).set()

    def _noted(self, event: Event) -> None:
        if event.happened == Happened.STARTED:
            self._begun[event.name].set()
        self._tell(event)

    async def _until_ready(self, following: asyncio.Task[None], timeout_s: float) -> None:
        waiting = asyncio.create_task(self._all_serving.wait())
        stopped = asyncio.create_task(self._stop.wait())
        failing = asyncio.create_task(self._hopeless())
        try:
            done, _ = await asyncio.wait(
                {waiting, following, stopped, failing}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
            if following in done:
                await following
            if failing in done:
                raise self._does_not_start(failing.result())
            if not done:
                raise self._not_ready_in_time(timeout_s)
            if waiting in done:
                self._tell(Event(Happened.READY, detail=str(self._config.state_dir)))
        finally:
            for task in (waiting, stopped, failing):
                task.cancel()
            await asyncio.gather(waiting, stopped, failing, return_exceptions=True)

    async def _follow(self) -> None:
        """Says of each process of a service, the first and those in its place, when it serves; until cancelled."""
        etcd = connect(self._config)
        channels = Channels(self._config, etcd)

        async def one(name: str) -> None:
            while True:
                await self._begun[name].wait()
                self._begun[name].clear()
                endpoint = await until_serving(etcd, channels, name, self._config.node)
                if self._begun[name].is_set():
                    # It was the one before that was well.
                    continue
                # Those outside the mesh know the address alone.
                self._services[name].again = self._command(name, endpoint.address)
                self._tell(Event(Happened.SERVING, name, self._services[name].pid, endpoint.address))
                self._serving.add(name)
                if len(self._serving) == len(SERVICES):
                    self._all_serving.set()

        try:
            await asyncio.gather(*map(one, SERVICES))
        finally:
            await channels.close()
            await etcd.close()

    async def _hopeless(self) -> str:
        while True:
            for name, service in self._services.items():
                # Exit code 2 is a wrong setting: it stays wrong.
                if service.restarts >= _HOPELESS or (service.exit_code == 2 and not service.pid):
                    return name
            await asyncio.sleep(0.1)

    async def _drain(self) -> None:
        self._tell(Event(Happened.DRAINING))
        hurry = asyncio.create_task(self._kill_in_a_hurry())
        try:
            for names in _DRAIN_ORDER:
                grace_s = self._config.drain_s + _GRACE_BEYOND_DRAIN_S
                await asyncio.gather(*(self._services[name].stop(grace_s) for name in names))
            if self._etcd is not None:
                await self._etcd.stop()
        finally:
            hurry.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await hurry

    async def _kill_in_a_hurry(self) -> None:
        await self._hurry.wait()
        for service in self._services.values():
            service.kill()

    def _does_not_start(self, name: str) -> FailedPrecondition:
        log = self._services[name].log
        said = last_lines(log)
        return FailedPrecondition(
            f"permille-{name} does not start" + (f"; it says:\n{said}" if said else ""),
            reason="SERVICE_DOES_NOT_START",
            help=f"correct what it says; its whole log is {log}",
            metadata={"service": name, "log": str(log)},
        )

    def _not_ready_in_time(self, timeout_s: float) -> Unavailable:
        missing = [name for name in SERVICES if name not in self._serving]
        return Unavailable(
            f"not serving after {timeout_s:g} s: {', '.join(missing)}",
            reason="NOT_READY",
            help=f"see the logs in {self._logs}, or give it more time: --ready-timeout",
            metadata={"services": ",".join(missing)},
        )


def program(service: str) -> list[str]:
    """The command that starts a service: the one installed beside this interpreter.

    Raises `FailedPrecondition` when the service is not installed.
    """
    script = Path(sysconfig.get_path("scripts")) / f"permille-{service}"
    if not script.exists():
        raise FailedPrecondition(
            f"permille-{service} is not installed ({script})",
            reason="SERVICE_NOT_INSTALLED",
            help="install all of permille: `make setup`",
            metadata={"service": service},
        )
    return [sys.executable, str(script)]


def last_lines(file: Path, count: int = 5) -> str:
    """The end of a log, indented."""
    try:
        text = file.read_bytes()[-8192:].decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(f"    {line[:400]}" for line in text.splitlines()[-count:])
