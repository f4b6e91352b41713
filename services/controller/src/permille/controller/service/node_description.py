"""What GetNode says about this machine."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
from permille.api.controller.v1 import controller_pb2 as pb
from permille.controller.domain import capabilities, processes
from permille.controller.domain.backends import Backends
from permille.controller.domain.capabilities import Capability, probed
from permille.controller.domain.not_on_this_machine import NotOnThisMachine
from permille.controller.domain.program_build import build_and_size
from permille.controller.domain.recording import RecordableProcess
from permille.controller.domain.session_budget import SessionBudget
from permille.controller.domain.switches.switch_recorder import SwitchRecorder
from permille.controller.service.session_message import backend_value
from permille.controller.service.session_registry import BUSY, SessionRegistry
from permille.mesh.errors import PermilleError
from permille.mesh.etcd import Etcd

if TYPE_CHECKING:
    from permille.mesh.store import ObjectStore

# Build id and size of the executable, by pid.
_Builds = Mapping[int, tuple[str, int]]


class NodeDescription:
    """Looks anew at every call: what is missing may have been installed meanwhile."""

    def __init__(
        self,
        node: str,
        *,
        zone: str,
        plugin: Path,
        vpt_dir: Path,
        budget: SessionBudget,
        backends: Backends,
        registry: SessionRegistry,
        switches: SwitchRecorder,
        etcd: Etcd,
        store: ObjectStore,
        store_url: str,
    ) -> None:
        self._node = node
        self._zone = zone
        self._plugin = plugin
        self._vpt_dir = vpt_dir
        self._budget = budget
        self._backends = backends
        self._registry = registry
        self._switches = switches
        self._etcd = etcd
        self._store = store
        self._store_url = store_url

    async def message(self, wanted: str, pids: Sequence[int], process_name: str) -> pb.Node:
        """The node, as the back end `wanted` would record on it ("": whichever), with those of `pids` and of the
        processes named `process_name`, whether they can be recorded or not."""
        asked = [process for pid in pids if (process := processes.describe(pid)) is not None]
        if process_name:
            asked += await asyncio.to_thread(processes.named, process_name)
        recordable = await asyncio.to_thread(self._backends.recordable, wanted, {process.pid for process in asked})
        known = {process.pid for process, _ in recordable}
        others = {process.pid: process for process in asked if process.pid not in known}
        told = [*(process for process, _ in recordable), *others.values()]
        builds = await asyncio.to_thread(lambda: {process.pid: build_and_size(process) for process in told})
        return pb.Node(
            name=f"nodes/{self._node}",
            zone=self._zone,
            cores=os.cpu_count() or 1,
            memory_bytes=psutil.virtual_memory().total,
            trace_budget_bytes=self._budget.of(recordable[0][1] if recordable else self._backends.usual(wanted)),
            capabilities=[capability_message(one) for one in await self._capabilities(self._ready(asked))],
            processes=[self._process(process, builds, backend.name) for process, backend in recordable],
            other_processes=[self._process(process, builds) for process in others.values()],
            recording=[session.name for session in self._registry.active() if session.state in BUSY],
            launch_prefix=self._launch_prefix(),
            following_launch_prefix=self._launch_prefix(",follow=on"),
        )

    def _launch_prefix(self, options: str = "") -> list[str]:
        return [capabilities.QEMU, "-plugin", f"{self._plugin},dir={self._vpt_dir}{options}"]

    def _process(self, process: RecordableProcess, builds: _Builds, backend: str = "") -> pb.Process:
        session = self._registry.recording(process.pid)
        return pb.Process(
            pid=process.pid,
            name=process.name,
            command_line=process.command_line,
            threads=process.threads,
            session=session.name if session else "",
            backend=backend_value(backend) if backend else pb.BACKEND_UNSPECIFIED,
            build_id=builds[process.pid][0],
            binary_bytes=builds[process.pid][1],
        )

    def _ready(self, asked: Sequence[RecordableProcess]) -> bool:
        """Whether vpt, which needs nothing of the processor, records all that are asked for."""
        ready = {process.pid for backend in self._backends if not backend.by_core for process in backend.processes()}
        return ready.issuperset(process.pid for process in asked)

    async def _capabilities(self, ready: bool) -> list[Capability]:
        own = await asyncio.to_thread(capabilities.machine, self._plugin, self._vpt_dir)
        own += await asyncio.to_thread(of_cores, self._backends, not_needed=ready)
        return [
            *own,
            await self._bpf(),
            await self._etcd_reachable(),
            await self._store_reachable(),
        ]

    async def _bpf(self) -> Capability:
        await self._switches.prepare()
        why_not = self._switches.unavailable
        return probed("bpf", why_not, self._switches.fix, lambda: "switch records are recorded")

    async def _etcd_reachable(self) -> Capability:
        try:
            await self._etcd.get("/permille/v1/ready")
        except PermilleError as error:
            return probed("etcd", error.message, error.help)
        return probed("etcd", "", "", lambda: ", ".join(self._etcd.endpoints))

    async def _store_reachable(self) -> Capability:
        try:
            await self._store.exists("permille")
        except PermilleError as error:
            return probed("store", error.message, error.help)
        return probed("store", "", "", lambda: self._store_url)


def of_cores(backends: Backends, *, not_needed: bool) -> list[Capability]:
    """The back ends that record cores, and any process. `not_needed`: vpt records what is asked for."""
    found = []
    for backend in backends:
        if backend.by_core:
            snapshots = ", also as a snapshot" if backend.snapshots else ""
            try:
                backend.require()
                found.append(Capability(backend.name, True, f"any process of this machine can be recorded{snapshots}"))
            except NotOnThisMachine as error:
                fix = f"{error.help}; {capabilities.NOT_NEEDED}" if not_needed else error.help
                found.append(probed(backend.name, error.because, fix))
    return found


def capability_message(capability: Capability) -> pb.Capability:
    return pb.Capability(
        name=capability.name, available=capability.available, detail=capability.detail, fix=capability.fix
    )
