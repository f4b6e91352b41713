"""Who calls, how often, and what of the quotas is left for them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable

from permille.api.coverage.v1 import coverage_pb2
from permille.api.operation.v1 import operation_pb2
from permille.coverage.domain.plan import Plan, Policy, Wish
from permille.coverage.domain.quota import DEFAULT, CallerLimits, Limit, Quota, Room, Usage
from permille.coverage.domain.token_bucket import TokenBuckets
from permille.coverage.service.heavy_nodes import held
from permille.coverage.service.wire import node_id
from permille.mesh.auth import Caller, Role, identity_of, sees_all
from permille.mesh.call_interceptor import Context
from permille.mesh.errors import Aborted, PermissionDenied, ResourceExhausted
from permille.mesh.operations import OperationStore

# An operation takes seconds.
_REQUESTS_AGAIN_S = 5.0
Begin = Callable[[Room, int], Awaitable[operation_pb2.Operation]]


class Callers:
    """Limits of callers and namespaces. Each replica counts calls; what is unfinished is in etcd, the same for all.

    permille's own services, which work for others, have no limits as callers.
    """

    def __init__(self, operations: OperationStore, policy: Policy, clock: Callable[[], float] = time.monotonic) -> None:
        self._operations = operations
        self._policy = policy
        self._clock = clock
        self._buckets = TokenBuckets(clock())
        self._one_at_a_time = asyncio.Lock()

    def counted(self, context: Context) -> Caller:
        """Who calls. Raises `ResourceExhausted` (CALL_RATE) for one call too many."""
        caller = identity_of(context)
        allowed = self._limits_of(caller).calls_per_minute
        if not allowed:
            return caller
        wait_s = self._buckets.wait_s(caller.name, allowed, self._clock())
        if wait_s:
            raise ResourceExhausted(
                f"{caller.name} calls more often than {allowed} times a minute",
                reason="CALL_RATE",
                help="call again after the delay, or raise calls_per_minute ([coverage] callers)",
                metadata={"caller": caller.name, "calls_per_minute": str(allowed)},
                retry_after_s=wait_s,
            )
        return caller

    async def room(self, caller: Caller, wish: Wish) -> Room:
        """What there is for this request of this caller.

        Raises `PermissionDenied` (NAMESPACE_NOT_ALLOWED) for a namespace, or a pod of one, that it may not ask for.
        """
        self._require_namespaces(caller, wish)
        room, _, _ = await self._present(caller, wish)
        return room

    async def start(self, caller: Caller, wish: Wish, begin: Begin) -> operation_pb2.Operation:
        """What `begin` returns for the room there is; again when another replica lets something begin meanwhile.

        Raises `ResourceExhausted` (CALLER_REQUESTS) when the caller has too many unfinished requests, and what `room`
        raises.
        """
        self._require_namespaces(caller, wish)
        own = self._limits_of(caller)
        async with self._one_at_a_time:
            while True:
                room, unfinished, revision = await self._present(caller, wish)
                if own.requests and unfinished >= own.requests:
                    raise _too_many(caller, own.requests)
                try:
                    return await begin(room, revision)
                except Aborted as error:
                    if error.reason != "CONCURRENT_CHANGE":
                        raise

    def _limits_of(self, caller: Caller) -> CallerLimits:
        return CallerLimits(0, 0, 0) if caller.roles == {Role.AGENT} else self._policy.caller(caller.name)

    def _require_namespaces(self, caller: Caller, wish: Wish) -> None:
        """That whose quota it is, and the pod's: of what is named otherwise no namespace is known here."""
        self._require_namespace(caller, wish.namespace, way_out="leave the namespace out")
        if of_pod := wish.target.pod_namespace:
            self._require_namespace(caller, of_pod, f" of the pod {wish.target.pod}", way_out="name another pod")

    def _require_namespace(self, caller: Caller, namespace: str, of: str = "", *, way_out: str) -> None:
        limits = self._limits_of(caller)
        if not limits.allows(namespace, trusted=sees_all(caller)):
            raise PermissionDenied(
                f"{caller.name} may not ask for the namespace {namespace}{of}, only for"
                f" {', '.join(limits.namespaces or (DEFAULT,))}",
                reason="NAMESPACE_NOT_ALLOWED",
                help=f"{way_out}, or have {namespace} added to the caller's `namespaces` ([coverage] callers)",
                metadata={"caller": caller.name, "namespace": namespace},
            )

    async def _present(self, caller: Caller, wish: Wish) -> tuple[Room, int, int]:
        contents, revision = await self._operations.reservations()
        reserved = [coverage_pb2.Reservation.FromString(content) for content in contents.values()]
        of_caller = [one for one in reserved if one.caller == caller.name]
        of_namespace = [one for one in reserved if one.namespace == wish.namespace]
        limits = [
            Limit(self._policy.quota(wish.namespace, wish.quota), _sum(of_namespace)),
            Limit(self._policy.cluster, _sum(reserved), owner="the cluster"),
            Limit(Quota(cores=self._limits_of(caller).cores), _sum(of_caller), owner=caller.name),
        ]
        nodes = frozenset(map(node_id, held(contents.values())))
        return Room(limits, nodes), len(of_caller), revision


def reservation(caller: Caller, namespace: str, made: Plan, room: Room) -> bytes:
    """What an operation takes, as it is kept; nodes that others have it waits for."""
    usage, nodes = made.usage, made.heavy_nodes
    return coverage_pb2.Reservation(
        namespace=namespace,
        caller=caller.name,
        cores=usage.cores,
        bytes_per_second=usage.bytes_per_second,
        decode_ms=usage.decode_ms,
        nodes=sorted(f"nodes/{node}" for node in nodes) if nodes.isdisjoint(room.held) else (),
    ).SerializeToString(deterministic=True)


def _sum(reserved: Iterable[coverage_pb2.Reservation]) -> Usage:
    return sum((Usage(one.cores, one.bytes_per_second, one.decode_ms) for one in reserved), Usage())


def _too_many(caller: Caller, allowed: int) -> ResourceExhausted:
    return ResourceExhausted(
        f"{caller.name} has {allowed} requests that are not done, as many as it may",
        reason="CALLER_REQUESTS",
        help="wait until one of them is done, or raise its `requests` ([coverage] callers)",
        metadata={"caller": caller.name, "requests": str(allowed)},
        retry_after_s=_REQUESTS_AGAIN_S,
    )
