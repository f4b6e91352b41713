"""What etcd was told of a service's operations, in the order in which it was told, and what of it must not be."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from permille.api.coverage.v1 import coverage_pb2
from permille.mesh.etcd import Etcd, KeyValue

_ROOT = "/permille/v1/"


class History:
    """Follows owners and saved states; `violations`: each in words; `saved`: what was saved last of each operation."""

    def __init__(self, etcd: Etcd, service: str) -> None:
        self._etcd = etcd
        self._service = service
        self._owners: dict[str, KeyValue] = {}
        self._pending: dict[str, KeyValue] = {}
        self._changed = asyncio.Condition()
        self.violations: list[str] = []
        self.saved: dict[str, coverage_pb2.CoverageState] = {}

    async def follow(self) -> None:
        """Until cancelled. Changes that come together are seen as one, so nothing is reported that was not."""
        async for state in self._etcd.observe_prefix(_ROOT):
            owners, pending = self._of("owners", state), self._of("pending", state)
            for identity, owner in owners.items():
                self._owned(identity, owner, pending)
            for identity, kv in pending.items():
                before = self._pending.get(identity)
                if before is None or before.mod_revision != kv.mod_revision:
                    self._save(identity, kv, owners)
            async with self._changed:
                self._owners, self._pending = owners, pending
                self._changed.notify_all()

    async def until_all_is_done(self) -> None:
        """Returns when no operation is unfinished, and all that was written before has been seen."""
        async with self._changed:
            await self._changed.wait_for(lambda: bool(self.saved) and not self._pending)

    def _of(self, kind: str, state: Mapping[str, KeyValue]) -> dict[str, KeyValue]:
        prefix = f"{_ROOT}{kind}/{self._service}/"
        return {key.removeprefix(prefix): kv for key, kv in state.items() if key.startswith(prefix)}

    def _owned(self, identity: str, owner: KeyValue, pending: Mapping[str, KeyValue]) -> None:
        before = self._owners.get(identity)
        if before is not None and before.create_revision == owner.create_revision and before.value != owner.value:
            self.violations.append(f"{identity} was taken from an owner that lived")
        if before is None and identity not in pending:
            self.violations.append(f"{identity} was taken when it was done")

    def _save(self, identity: str, kv: KeyValue, owners: Mapping[str, KeyValue]) -> None:
        state = coverage_pb2.CoverageState.FromString(kv.value)
        before = self.saved.get(identity, coverage_pb2.CoverageState())
        if identity not in owners and identity not in self._owners:
            self.violations.append(f"{identity} was saved when nobody owned it")
        if not before.sessions.items() <= state.sessions.items() or state.rounds[: len(before.rounds)] != before.rounds:
            self.violations.append(f"{identity} had its state replaced by an older one")
        self.saved[identity] = state
