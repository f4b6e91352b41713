"""Connections to S3 that are given up when nothing moves, however long all of a request takes to send."""

from __future__ import annotations

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection

# To connect, and for each piece that is sent, and for each that is read.
TIMEOUT = urllib3.Timeout(connect=5, read=60)
_PIECE_BYTES = 64 << 10


class _Connection(HTTPConnection):
    def connect(self) -> None:
        super().connect()
        _sends_in_time(self)


class _TlsConnection(HTTPSConnection):
    def connect(self) -> None:
        super().connect()
        _sends_in_time(self)


class _Pool(urllib3.HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


def moving(pools: urllib3.PoolManager) -> urllib3.PoolManager:
    """The same, with these connections. A body that is a file is sent in pieces, each with a time of its own."""
    pools.pool_classes_by_scheme = {"http": _Pool, "https": _TlsPool}
    pools.connection_pool_kw |= {"timeout": TIMEOUT, "blocksize": _PIECE_BYTES}
    return pools


def _sends_in_time(connection: HTTPConnection) -> None:
    # urllib3 leaves what was meant for connecting, which is too short for a server that is busy.
    connection.sock.settimeout(TIMEOUT.read_timeout)
