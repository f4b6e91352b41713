"""Whether a decode still goes on: as long as an object of its own is in the store."""

from __future__ import annotations

import time

from permille.mesh.errors import Aborted, PermilleError
from permille.mesh.store import ObjectStore

# A part may take minutes; to ask takes a request.
_LOOK_S = 1.0


async def require_wanted(store: ObjectStore, begun_key: str) -> None:
    """Raises `Aborted` when the decode is over."""
    # What is stored for a decode that is over nobody would ever remove.
    if not await store.exists(begun_key):
        raise decode_over(store, begun_key)


class StillWanted:
    """For a thread that decodes, and asks as often as it likes."""

    def __init__(self, store: ObjectStore, begun_key: str) -> None:
        self._store = store
        self._begun_key = begun_key
        self._next_s = time.monotonic() + _LOOK_S

    def require(self) -> None:
        """Raises `Aborted` when the decode is over, so that what is more urgent need not wait for all of a part."""
        if time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + _LOOK_S
        try:
            begun = self._store.read_plain(self._begun_key)
        except PermilleError:
            # Who stores the part's rows will tell that the store is away.
            return
        if begun is None:
            raise decode_over(self._store, self._begun_key)


def decode_over(store: ObjectStore, begun_key: str) -> Aborted:
    """Somebody else has ended it."""
    return Aborted(
        f"the decode is over: {begun_key} of the store {store.url} is gone",
        reason="DECODE_OVER",
        help="nothing to do where it was cancelled; else another mesh uses this store, and takes what its own etcd does"
        " not know for over: give each mesh a store of its own, and decode again",
        metadata={"key": begun_key, "store": store.url},
    )
