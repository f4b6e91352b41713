"""An object's content as it arrives; where it breaks off, the rest is asked for."""

from __future__ import annotations

import threading
from contextlib import suppress

import urllib3
from permille.mesh.store.s3_connection import S3Connection, S3Request
from permille.mesh.store.s3_errors import S3Error

# Of each read: what takes hours may break off in each of them.
_TRIES = 3
_PARTIAL = 206


class S3Content:
    """Of the version with this ETag. Blocking, to be read by one thread; `read` raises `s3_connection.FAILURES`."""

    def __init__(self, connection: S3Connection, key: str, etag: str, response: urllib3.BaseHTTPResponse) -> None:
        self._connection = connection
        self._key = key
        self._etag = etag
        self._response = response
        self._size = 0
        self._state = threading.Lock()
        self._reading = self._unwanted = False

    def read(self, amount: int | None = None) -> bytes:
        """So many bytes, fewer at its end, b"" behind it; all that is left without a number."""
        with self._state:
            self._reading = True
        try:
            return self._next(amount)
        finally:
            with self._state:
                self._reading = False
            if self._unwanted:
                self._response.close()

    def close(self) -> None:
        """Gives the connection up, or back where all was read. Waits for nobody who reads meanwhile: his read ends."""
        with self._state:
            self._unwanted = True
            if not self._reading:
                self._response.close()
                return
        # Closing it would wait for what the other thread waits for.
        with suppress(ValueError, RuntimeError, OSError):
            self._response.shutdown()

    def _next(self, amount: int | None) -> bytes:
        tried = 1
        while True:
            try:
                piece = self._response.read(amount)
            except urllib3.exceptions.HTTPError:
                if tried == _TRIES or self._unwanted:
                    raise
                self._response.close()
                self._response = self._rest()
                tried += 1
            else:
                self._size += len(piece)
                return piece

    def _rest(self) -> urllib3.BaseHTTPResponse:
        headers = {"if-match": f'"{self._etag}"'} | ({"range": f"bytes={self._size}-"} if self._size else {})
        response = self._connection.request(S3Request("GetObject", "GET", self._key, headers=headers, stream=True))
        if self._size and response.status != _PARTIAL:
            response.close()
            raise S3Error("GetObject", response.status, "", "asked for the rest of an object, it begins anew")
        return response
