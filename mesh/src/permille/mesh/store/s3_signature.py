"""The signature that S3 wants of each request: AWS Signature Version 4, in the headers."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import quote

UNSIGNED = "UNSIGNED-PAYLOAD"


@dataclass(frozen=True)
class Credentials:
    """A key of S3; the token comes with those that last for hours only."""

    access_key: str
    secret_key: str = field(repr=False)
    token: str = field(default="", repr=False)


@dataclass(frozen=True)
class Request:
    """What is signed: `path` as it is in the URL; header names in lower case, `host` among them."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]

    @property
    def query_string(self) -> str:
        """In the order and the spelling that are signed."""
        quoted = sorted((quote(name, safe=""), quote(value, safe="")) for name, value in self.query.items())
        return "&".join(f"{name}={value}" for name, value in quoted)


def signed(
    request: Request, payload_sha256: str, credentials: Credentials, region: str, now: datetime
) -> dict[str, str]:
    """The request's headers and those that sign it. `payload_sha256`: in hex, or `UNSIGNED`; `now`: in UTC.

    https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
    """
    moment = now.strftime("%Y%m%dT%H%M%SZ")
    headers = {**request.headers, "x-amz-content-sha256": payload_sha256, "x-amz-date": moment}
    if credentials.token:
        headers["x-amz-security-token"] = credentials.token
    names = ";".join(sorted(headers))
    canonical = "\n".join(
        [
            request.method,
            request.path,
            request.query_string,
            *(f"{name}:{' '.join(headers[name].split())}" for name in sorted(headers)),
            "",
            names,
            payload_sha256,
        ]
    )
    scope = (moment[:8], region, "s3", "aws4_request")
    to_sign = "\n".join(("AWS4-HMAC-SHA256", moment, "/".join(scope), hashlib.sha256(canonical.encode()).hexdigest()))
    key = f"AWS4{credentials.secret_key}".encode()
    for part in scope:
        key = _hmac(key, part)
    credential = "/".join((credentials.access_key, *scope))
    headers["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={names}, Signature={_hmac(key, to_sign).hex()}"
    )
    return headers


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), "sha256")
