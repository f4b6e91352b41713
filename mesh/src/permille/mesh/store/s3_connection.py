"""Signed requests to one bucket of S3, tried again while that may help.

Not boto3: 24 MB of memory in every controller, for descriptions of services that nobody here calls.
"""

from __future__ import annotations

import hashlib
import io
import os
import random
import ssl
import threading
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NoReturn
from urllib.parse import quote, urlsplit
from urllib.request import getproxies, proxy_bypass
from xml.etree import ElementTree as ET

import urllib3
from permille.mesh.store.s3_credentials import CredentialsAwayError, CredentialsRefusedError, S3Credentials
from permille.mesh.store.s3_errors import S3Error
from permille.mesh.store.s3_signature import UNSIGNED, Request, signed
from permille.mesh.store.s3_sockets import moving

_TRIES = 3
# As many as a store has threads.
_CONNECTIONS = 32
# Of what a server asks to wait; who waits longer is told, and has patience of his own.
_MOST_AFTER_S = 30
_PASSING = {"InternalError", "RequestTimeout", "ServiceUnavailable", "SlowDown", "Throttling"}
_PASSING_STATUS = {429, 500, 502, 503, 504}
# Of an error's answer, and of its text.
_MOST_ERROR_BYTES, _MOST_TOLD = 64 << 10, 1000


@dataclass(frozen=True)
class S3Request:
    """`operation`: its name in the API. `stream`: the content is read from the response, which is to be closed."""

    operation: str
    method: str
    key: str = ""
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    stream: bool = False


# What a request raises: besides the server's own errors, the network's and those of something that speaks no S3.
FAILURES = (
    S3Error,
    CredentialsRefusedError,
    CredentialsAwayError,
    urllib3.exceptions.HTTPError,
    OSError,
    ET.ParseError,
    KeyError,
    ValueError,
)


class S3Connection:
    """One bucket. Blocking, for any number of threads.

    Tries three times, at most 5 s to connect and 60 s in which nothing is sent or answered, and waits in between for as
    long as the server asks to (RFC 9110, Retry-After, in seconds), at most 30 s. Raises `FAILURES`.
    """

    def __init__(self, bucket: str, endpoint: str, region: str, credentials: S3Credentials) -> None:
        self._bucket = bucket
        self._endpoint = endpoint or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL", "")
        self._region = region
        self._credentials = credentials
        self._pool: urllib3.PoolManager | None = None
        self._beginning = threading.Lock()

    def request(self, call: S3Request) -> urllib3.BaseHTTPResponse:
        """What a server answers that did it; where the bucket is in another region, that of this one."""
        tried = 1
        while True:
            try:
                return self._once(call)
            except (S3Error, urllib3.exceptions.HTTPError) as error:
                if tried == _TRIES or not self._worth_another(error):
                    raise
                least_s = min(error.retry_after_s, _MOST_AFTER_S) if isinstance(error, S3Error) else 0
            time.sleep(least_s + random.uniform(0, 2 ** (tried - 1)))  # noqa: S311
            tried += 1

    def _worth_another(self, error: Exception) -> bool:
        if not isinstance(error, S3Error):
            return not any(isinstance(cause, ssl.SSLCertVerificationError) for cause in error.args)
        if error.region and error.region != self._region:
            # The bucket is elsewhere.
            self._region = error.region
            return True
        return error.status in _PASSING_STATUS or error.code in _PASSING

    def _once(self, call: S3Request) -> urllib3.BaseHTTPResponse:
        scheme, host, folder = self._address()
        path = f"{folder}/{quote(call.key, safe='/')}"
        request = Request(call.method, path, call.query, {**call.headers, "host": host})
        # What has an MD5 and goes through TLS is not hashed once more.
        unsigned = scheme == "https" and "content-md5" in call.headers
        payload = UNSIGNED if unsigned else hashlib.sha256(call.body).hexdigest()
        headers = signed(request, payload, self._credentials.current(), self._region, datetime.now(UTC))
        response = self._connections(scheme, host).request(
            call.method,
            f"{scheme}://{host}{path}" + (f"?{request.query_string}" if call.query else ""),
            headers=headers | {"content-length": str(len(call.body))} if call.body else headers,
            body=io.BytesIO(call.body) if call.body else None,
            preload_content=False,
            decode_content=False,
            retries=False,
            redirect=False,
        )
        if response.status >= 300:
            with closing(response):
                _raise(call.operation, response, response.status, response.read(_MOST_ERROR_BYTES))
        if not call.stream:
            # All of it is read here, so that another attempt is made where it breaks off.
            body = response.data
            if call.operation == "CompleteMultipartUpload" and b"<Error" in body:
                # Of these the status is sent before it is known how they end.
                _raise(call.operation, response, 500, body)
        return response

    def _address(self) -> tuple[str, str, str]:
        """Scheme, host and port, and the path of the bucket."""
        if self._endpoint:
            parts = urlsplit(self._endpoint)
            return parts.scheme, parts.netloc, f"{parts.path.rstrip('/')}/{self._bucket}"
        domain = f"s3.{self._region}.amazonaws.com" + (".cn" if self._region.startswith("cn-") else "")
        if "." in self._bucket:
            # No certificate is for a name with a further dot.
            return "https", domain, f"/{self._bucket}"
        return "https", f"{self._bucket}.{domain}", ""

    def _connections(self, scheme: str, host: str) -> urllib3.PoolManager:
        with self._beginning:
            if self._pool is None:
                trusted = _trusted() if scheme == "https" else None
                proxy = "" if proxy_bypass(host) else getproxies().get(scheme, "")
                self._pool = moving(
                    urllib3.ProxyManager(proxy, maxsize=_CONNECTIONS, ssl_context=trusted)
                    if proxy
                    else urllib3.PoolManager(maxsize=_CONNECTIONS, ssl_context=trusted)
                )
            return self._pool


def _trusted() -> ssl.SSLContext:
    bundle = os.environ.get("AWS_CA_BUNDLE") or os.environ.get("REQUESTS_CA_BUNDLE")
    try:
        return ssl.create_default_context(cafile=bundle)
    except OSError as error:
        raise OSError(f"AWS_CA_BUNDLE {bundle} cannot be read: {error}") from error


def _raise(operation: str, response: urllib3.BaseHTTPResponse, status: int, body: bytes) -> NoReturn:
    try:
        root = parsed(body)
    except ET.ParseError:
        # The answer to HEAD, or of something before the server.
        root = ET.Element("Error")
    region = response.headers.get("x-amz-bucket-region") or text_of(root, "Region")
    after = response.headers.get("retry-after", "")
    raise S3Error(
        operation,
        status,
        text_of(root, "Code"),
        text_of(root, "Message")[:_MOST_TOLD],
        region=region,
        retry_after_s=int(after) if after.isascii() and after.isdecimal() else 0,
    )


def parsed(body: bytes, *, root: str = "") -> ET.Element:
    """The XML that was answered. Raises `ET.ParseError`, also for another root than this one: a portal answers, too."""
    if b"<!DOCTYPE" in body:
        # S3 sends none, and what it defines may be without an end.
        raise ET.ParseError("a document type is declared")
    # Spaces before the first line keep the connection alive.
    found = ET.fromstring(body.strip())  # noqa: S314
    if root and found.tag.rpartition("}")[2] != root:
        raise ET.ParseError(f"<{found.tag}> in place of <{root}>")
    return found


def text_of(element: ET.Element, name: str) -> str:
    """Of the child so named; "" without one."""
    return element.findtext(f"{{*}}{name}") or ""
