"""A copy of one kind of the API server's objects, kept up to date by a watch."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

import structlog
from kubernetes_asyncio import client
from permille.coverage.service.kubernetes.cluster import AWAY, Cluster, Object
from permille.mesh.backoff import Backoff

_log = structlog.get_logger(__name__)
_PAGE = 500
_GONE = 410
_T = TypeVar("_T")


class Reflector(Generic[_T]):
    """Lists, then watches from there on; after a gap that the server has forgotten it lists again.

    `keep`: what is kept of an object, so that a large cluster's pods fit into little memory.
    """

    def __init__(
        self, cluster: Cluster, path: str, keep: Callable[[Object], _T], on_change: Callable[[], None]
    ) -> None:
        self._cluster = cluster
        self._path = path
        self._keep = keep
        self._on_change = on_change
        self._version = ""
        self._kept: dict[str, dict[str, _T]] = {}
        # Set while everything was listed and a watch is open.
        self.current = asyncio.Event()
        # Why it is not.
        self.trouble = "no answer yet"

    def of(self, namespace: str) -> Mapping[str, _T]:
        """The objects of a namespace by name; of what has no namespace those of ""."""
        return self._kept.get(namespace, {})

    def all(self) -> Mapping[str, Mapping[str, _T]]:
        """All objects, by namespace and name."""
        return self._kept

    async def run(self) -> None:
        """Keeps the copy up to date, until cancelled."""
        pauses = Backoff(0.2, 5.0)
        while True:
            try:
                if not self._version:
                    await self._list()
                await self._watch()
                pauses.reset()
            except (client.ApiException, *AWAY) as error:
                if isinstance(error, client.ApiException) and error.status == _GONE:
                    # The server has forgotten what happened since: there is nothing but to list anew.
                    self._version = ""
                if self.current.is_set():
                    _log.warning("cannot watch now; trying again", path=self._path, error=str(error))
                self.current.clear()
                self.trouble = str(error) or type(error).__name__
                await pauses.pause()

    async def _list(self) -> None:
        kept: dict[str, dict[str, _T]] = defaultdict(dict)
        after = ""
        while True:
            answer = await self._cluster.page(self._path, _PAGE, after)
            for body in answer["items"]:
                kept[body["metadata"].get("namespace", "")][body["metadata"]["name"]] = self._keep(body)
            after = answer["metadata"].get("continue") or ""
            if not after:
                break
        # What went while nobody watched goes from here too.
        self._kept = kept
        self._version = answer["metadata"]["resourceVersion"]
        self._on_change()

    async def _watch(self) -> None:
        async with self._cluster.watching(self._path, self._version) as lines:
            self.current.set()
            async for line in lines:
                self._take(json.loads(line))

    def _take(self, event: Object) -> None:
        kind, body = event["type"], event["object"]
        if kind == "ERROR":
            raise client.ApiException(status=body.get("code"), reason=body.get("message"))
        metadata = body["metadata"]
        # A bookmark brings nothing but this.
        self._version = metadata["resourceVersion"]
        if kind == "BOOKMARK":
            return
        names = self._kept.setdefault(metadata.get("namespace", ""), {})
        if kind == "DELETED":
            names.pop(metadata["name"], None)
        else:
            names[metadata["name"]] = self._keep(body)
        self._on_change()
