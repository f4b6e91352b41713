"""Which keys objects may have."""

from __future__ import annotations

from permille.mesh.errors import InvalidArgument

_LONGEST_KEY_BYTES = 900
_LONGEST_PART_BYTES = 200


def valid_key(key: str) -> str:
    """The key itself: names joined by `/`, relative, none empty or beginning with a dot, at most 900 bytes.

    Raises `InvalidArgument` otherwise. A folder, S3 and a URL can all hold such a key.
    """
    if not key or len(key.encode(errors="replace")) > _LONGEST_KEY_BYTES:
        raise _bad(key, f"it must have 1 to {_LONGEST_KEY_BYTES} bytes")
    for part in key.split("/"):
        _require_part(key, part)
    return key


def valid_prefix(prefix: str) -> str:
    """A prefix to list: empty, or a key, or a key that ends with `/`. Raises `InvalidArgument` otherwise."""
    if prefix:
        valid_key(prefix.removesuffix("/"))
    return prefix


def valid_folder(prefix: str) -> str:
    """A prefix to delete: a key that ends with `/`. Raises `InvalidArgument` otherwise."""
    if not prefix.endswith("/"):
        raise _bad(prefix, "a prefix to delete ends with /")
    return valid_prefix(prefix)


def _require_part(key: str, part: str) -> None:
    if not part:
        raise _bad(key, "it must not begin or end with / nor hold //")
    if part.startswith("."):
        raise _bad(key, "no name in it may begin with a dot")
    if len(part.encode(errors="replace")) > _LONGEST_PART_BYTES:
        raise _bad(key, f"a name in it may have at most {_LONGEST_PART_BYTES} bytes")
    if "\\" in part or not part.isprintable():
        raise _bad(key, "it must hold printable characters only, and no backslash")


def _bad(key: str, rule: str) -> InvalidArgument:
    return InvalidArgument(
        f"{key!r} is no key of the object store: {rule}",
        reason="BAD_OBJECT_KEY",
        help="keys look like raw/<session-id>/manifest.json",
        metadata={"key": key},
    )
