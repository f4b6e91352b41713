"""From a URL to the store behind it."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from permille.mesh.errors import InvalidArgument
from permille.mesh.store.keys import valid_key
from permille.mesh.store.object_store import ObjectStore

_OPTIONS = {"endpoint", "region"}


def open_store(url: str) -> ObjectStore:
    """`file:///folder`, or `s3://bucket/prefix?endpoint=http://host:port&region=name`.

    S3 credentials come from where the AWS tools look for them (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, profiles,
    instance roles), never from the URL. Nothing is contacted yet. Raises `InvalidArgument`.
    """
    parts = urlsplit(url)
    if parts.fragment:
        raise _bad(url, "what stands behind a # is no part of a name: write it %23")
    if parts.scheme == "file":
        return _folder(url, parts.netloc, unquote(parts.path), parts.query)
    if parts.scheme == "s3":
        return _s3(url, parts.netloc, parts.path.strip("/"), parts.query)
    raise _bad(url, f"it begins with {parts.scheme!r}")


def _folder(url: str, host: str, path: str, query: str) -> ObjectStore:
    from permille.mesh.store.folder import FolderStore  # noqa: PLC0415 - a process needs one back end

    if host or not path.startswith("/") or query:
        raise _bad(url, "a folder is file:// and an absolute path, nothing else")
    if not path.isprintable() or "%" in path or "\N{REPLACEMENT CHARACTER}" in path:
        # Delta Lake refuses such a path, or reads another one than it writes.
        raise _bad(url, "the folder's path has a percent sign, or characters that cannot be printed or are no UTF-8")
    return FolderStore(Path(path))


def _s3(url: str, bucket: str, prefix: str, query: str) -> ObjectStore:
    from permille.mesh.store.s3 import S3Store  # noqa: PLC0415 - a process needs one back end

    if not bucket or "@" in bucket:
        raise _bad(url, "it needs a bucket, and no credentials")
    options = dict(parse_qsl(query, keep_blank_values=True))
    unknown = set(options) - _OPTIONS
    if unknown:
        raise _bad(url, f"{', '.join(sorted(unknown))} is no option of it; there are endpoint and region")
    if prefix:
        valid_key(prefix)
    return S3Store(bucket, prefix, endpoint=options.get("endpoint", ""), region=options.get("region", "us-east-1"))


def _bad(url: str, why: str) -> InvalidArgument:
    # The scheme and what follows up to a credential, no more: a URL in a log must not tell a secret.
    shown = url if "@" not in url else urlsplit(url).scheme + "://..."
    return InvalidArgument(
        f"{shown!r} is no object store: {why}",
        reason="BAD_STORE_URL",
        help="write file:///absolute/folder or s3://bucket/prefix?endpoint=https://host:port",
        metadata={"store": shown},
    )
