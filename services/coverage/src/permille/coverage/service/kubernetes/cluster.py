"""The API server: paths, JSON, and what its answers mean."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from email.utils import parsedate_to_datetime
from typing import Any

import aiohttp
from kubernetes_asyncio import client, config
from permille.coverage.domain.kubernetes.admission import NAME
from permille.coverage.domain.kubernetes.conditions import timestamp
from permille.mesh.errors import Code, FailedPrecondition, PermilleError

GROUP, VERSION = "permille.dev", "v1alpha1"
REQUESTS, SESSIONS, POLICIES = "tracerequests", "tracesessions", "tracepolicies"
Object = dict[str, Any]
# What ends by itself when the API server is back.
AWAY = (aiohttp.ClientError, OSError, TimeoutError)
# Not typed by its authors.
_in_cluster: Callable[..., None] = config.load_incluster_config
_OK, _NOT_FOUND, _CONFLICT, _TOO_MANY = 200, 404, 409, 429
_MOST_TOLD = 1000
# The reason of what a quota or a policy of the API server does not let through.
REFUSED = "RefusedByServer"
# A server that has just begun has read no roles yet, and refuses everybody.
_SURE_S = 10.0
_ANSWER_S = 30.0
# The server ends a watch after so long; it sends a bookmark each minute, so that silence means that it is gone.
_WATCH_S = 300
_SILENT_S = 150.0


async def configured() -> client.Configuration:
    """Where the API server is and who we are: the pod's service account, else the kubeconfig ($KUBECONFIG).

    Raises `FailedPrecondition` when there is neither.
    """
    configuration = client.Configuration()
    try:
        if "KUBERNETES_SERVICE_HOST" in os.environ:
            _in_cluster(client_configuration=configuration)
        else:
            await config.load_kube_config(client_configuration=configuration, persist_config=False)
    except config.ConfigException as error:
        raise FailedPrecondition(
            f"no API server is known: {error}",
            reason="KUBERNETES_UNKNOWN",
            help="run it in a pod with a service account, or set KUBECONFIG to a kubeconfig file",
        ) from None
    return configuration


def is_transient(error: BaseException) -> bool:
    """Whether the same call may succeed later: a server is away, busy, or somebody was quicker."""
    if isinstance(error, client.ApiException):
        return error.status in (_CONFLICT, _TOO_MANY, 0) or (error.status or 0) >= 500
    if isinstance(error, PermilleError):
        return error.code in (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED, Code.ABORTED)
    return isinstance(error, AWAY)


def refusal(error: BaseException) -> str:
    """Why the API server will not do what was asked for, as it says; "" for any other error."""
    if not isinstance(error, client.ApiException) or is_transient(error):
        return ""
    with suppress(ValueError, TypeError, KeyError):
        return str(json.loads(error.body or "")["message"])[:_MOST_TOLD]
    return f"{error.status} {error.reason}"[:_MOST_TOLD]


def may_pass(error: BaseException) -> bool:
    """Whether the same call may succeed later, also because somebody gives the rights or makes the room for it."""
    return is_transient(error) or bool(refusal(error))


class Refusals:
    """Which refusals of one piece of work are meant: those that go on for some seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._first = self._last = -math.inf

    def meant(self, error: BaseException) -> str:
        """`refusal`, and "" too for one that may be gone at the next attempt, some seconds later."""
        why = refusal(error)
        if not why:
            return ""
        now = self._clock()
        if now > self._last + _SURE_S:
            self._first = now
        self._last = now
        return why if now >= self._first + _SURE_S else ""


class Cluster:
    """The few calls that the operator makes. Raises `client.ApiException`, or one of `AWAY`."""

    def __init__(self, configuration: client.Configuration) -> None:
        self._api = client.ApiClient(configuration)

    async def close(self) -> None:
        """Closes the connections."""
        await self._api.close()

    async def get(self, plural: str, namespace: str, name: str) -> Object | None:
        """One of permille's objects; None when there is none."""
        return await self._found(_path(plural, namespace, name))

    async def all_of(self, plural: str, namespace: str) -> list[Object]:
        """All of permille's objects of a kind in a namespace."""
        answer = await self._call("GET", _path(plural, namespace))
        items: list[Object] = answer["items"]
        return items

    async def create(self, plural: str, namespace: str, body: Object) -> Object | None:
        """Creates an object; None when one of that name exists."""
        try:
            return await self._call("POST", _path(plural, namespace), body=body)
        except client.ApiException as error:
            if error.status != _CONFLICT:
                raise
            return None

    async def patch_status(
        self, plural: str, namespace: str, name: str, status: Mapping[str, Any], *, version: str = ""
    ) -> Object | None:
        """Merges into the status; with `version` only while the object has this resourceVersion. None: it is gone."""
        metadata = {"metadata": {"resourceVersion": version}} if version else {}
        path = _path(plural, namespace, name) + "/status"
        try:
            return await self._call("PATCH", path, body={**metadata, "status": dict(status)})
        except client.ApiException as error:
            if error.status != _NOT_FOUND:
                raise
            return None

    async def delete(self, plural: str, namespace: str, name: str, uid: str) -> None:
        """Deletes the object with this UID; one that is gone or is another one by now is left alone."""
        body = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        try:
            await self._call("DELETE", _path(plural, namespace, name), body=body)
        except client.ApiException as error:
            if error.status not in (_NOT_FOUND, _CONFLICT):
                raise

    async def page(self, path: str, limit: int, after: str) -> Object:
        """So many objects of a list; `after`: the `continue` of the page before."""
        return await self._call("GET", path, query={"limit": str(limit), **({"continue": after} if after else {})})

    @asynccontextmanager
    async def watching(self, path: str, version: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """The lines of a watch that begins at this resourceVersion; they end when the server ends it."""
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(_WATCH_S),
        }
        answer = await self._api.call_api(
            path,
            "GET",
            query_params=list(query.items()),
            header_params={"Accept": "application/json"},
            auth_settings=["BearerToken"],
            _preload_content=False,
            _request_timeout=aiohttp.ClientTimeout(sock_connect=_ANSWER_S, sock_read=_SILENT_S),
        )
        async with answer:
            if answer.status != _OK:
                raise client.ApiException(status=answer.status, reason=(await answer.text())[:_MOST_TOLD])
            yield answer.content

    async def admission(self) -> tuple[Object | None, Object | None, str]:
        """The policy that asks for the user's rights, and its binding, and when both were so (RFC 3339, the server's
        clock); "" where one is not there."""
        base = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic"
        policy = await self._found(f"{base}ies/{NAME}")
        try:
            binding, told = await self._answer("GET", f"{base}ybindings/{NAME}")
        except client.ApiException as error:
            if error.status != _NOT_FOUND:
                raise
            return policy, None, ""
        return policy, binding, timestamp(parsedate_to_datetime(told["Date"]))

    async def _found(self, path: str) -> Object | None:
        try:
            return await self._call("GET", path)
        except client.ApiException as error:
            if error.status != _NOT_FOUND:
                raise
            return None

    async def _call(
        self, method: str, path: str, *, body: Any = None, query: Mapping[str, str] | None = None
    ) -> Object:
        return (await self._answer(method, path, body=body, query=query))[0]

    async def _answer(
        self, method: str, path: str, *, body: Any = None, query: Mapping[str, str] | None = None
    ) -> tuple[Object, Mapping[str, str]]:
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        answer: Object
        answer, _, headers = await self._api.call_api(
            path,
            method,
            query_params=list((query or {}).items()),
            header_params={"Accept": "application/json", "Content-Type": kind},
            body=body,
            response_types_map=dict.fromkeys((200, 201, 202), "object"),
            auth_settings=["BearerToken"],
            _request_timeout=_ANSWER_S,
        )
        return answer, headers


def everywhere(plural: str) -> str:
    """The path of all of permille's objects of a kind."""
    return f"/apis/{GROUP}/{VERSION}/{plural}"


def _path(plural: str, namespace: str, name: str = "") -> str:
    path = f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{plural}"
    return f"{path}/{name}" if name else path
