"""Who serves what, and where: leased keys in etcd."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from permille.mesh.errors import DeadlineExceeded
from permille.mesh.etcd import Etcd, KeyValue
from permille.mesh.lease import Lease

_ROOT = "/permille/v1/services/"


@dataclass(frozen=True)
class Endpoint:
    """One running instance of a service; `address` is host:port."""

    service: str
    instance: str
    address: str
    metadata: Mapping[str, str] = field(default_factory=dict)


def service_key(service: str, instance: str) -> str:
    """The etcd key of an instance."""
    return f"{_ROOT}{service}/{instance}"


async def register(
    lease: Lease, service: str, instance: str, address: str, metadata: Mapping[str, str] | None = None
) -> None:
    """Announces an instance for as long as the lease lives; while etcd is away the announcement waits for it."""
    value = json.dumps({"address": address, "metadata": dict(metadata or {})}, sort_keys=True)
    await lease.put(service_key(service, instance), value.encode())


async def unregister(lease: Lease, service: str, instance: str) -> None:
    """Takes the announcement back. Raises `Unavailable` when etcd is away."""
    await lease.forget(service_key(service, instance))


async def resolve(etcd: Etcd, service: str) -> list[Endpoint]:
    """The instances of a service that are alive, by instance name; empty when there is none. Raises `Unavailable`."""
    return [_endpoint(kv) for kv in await etcd.prefix(f"{_ROOT}{service}/")]


async def find(etcd: Etcd, service: str, instance: str) -> Endpoint | None:
    """One instance, None when it is not alive; costs the same however many there are. Raises `Unavailable`."""
    kv = await etcd.get(service_key(service, instance))
    return None if kv is None else _endpoint(kv)


async def wait_for(etcd: Etcd, service: str, *, instance: str | None = None, timeout_s: float) -> Endpoint:
    """The first instance of a service, or the one named, as soon as it is there. Raises `DeadlineExceeded`."""
    try:
        async with asyncio.timeout(timeout_s):
            async for state in etcd.observe_prefix(f"{_ROOT}{service}/"):
                for kv in state.values():
                    endpoint = _endpoint(kv)
                    if instance is None or endpoint.instance == instance:
                        return endpoint
    except TimeoutError:
        pass
    who = f"{service} {instance}" if instance else service
    raise DeadlineExceeded(
        f"no {who} registered within {timeout_s:g} s",
        reason="SERVICE_ABSENT",
        help=f"see the log of permille-{service}; `permille doctor` shows what runs",
        metadata={"service": service, "instance": instance or ""},
    )


def _endpoint(kv: KeyValue) -> Endpoint:
    service, _, instance = kv.key.removeprefix(_ROOT).partition("/")
    value = json.loads(kv.value)
    return Endpoint(service, instance, str(value["address"]), dict(value.get("metadata", {})))
