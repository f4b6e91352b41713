"""Names around operations: their own, the request_ids that make them and their parts, and the tokens of their pages."""

from __future__ import annotations

import base64
import re

from permille.mesh.errors import InvalidArgument

_REQUEST_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
_OPERATION_ID = re.compile(r"[0-9a-f]{12}-[0-9a-f]{8}")
_PART = re.compile(rf"({_OPERATION_ID.pattern})-[0-9]+")
_PREFIX = "operations/"


def operation_name(identity: str) -> str:
    """`operations/<id>`."""
    return _PREFIX + identity


def require_request_id(request_id: str) -> str:
    """The request_id, if it is well formed. Raises `InvalidArgument`."""
    if not _REQUEST_ID.fullmatch(request_id):
        raise InvalidArgument(
            f"the request_id {request_id[:200]!r} is malformed",
            reason="REQUEST_ID",
            help="use 1 to 128 letters, digits and . _ : -, beginning with a letter or digit; a UUID is fine",
        )
    return request_id


def operation_id(name: str) -> str:
    """The id in `operations/<id>`. Raises `InvalidArgument`."""
    identity = name.removeprefix(_PREFIX)
    if not name.startswith(_PREFIX) or not _OPERATION_ID.fullmatch(identity):
        raise InvalidArgument(
            f"{name[:200]!r} does not name an operation",
            reason="OPERATION_NAME",
            help="the name of an operation is `operations/<id>`, as the start call returned it",
        )
    return identity


def part_request_id(operation: str, part: int) -> str:
    """Under which an operation asks others for a part of its work. Raises `InvalidArgument`."""
    return f"{operation_id(operation)}-{part}"


def operation_of(request_id: str) -> str:
    """The operation of which this is a `part_request_id`; "" for any other."""
    part = _PART.fullmatch(request_id)
    return operation_name(part[1]) if part else ""


def page_token_of(identity: str) -> str:
    """Of the page that goes on behind this operation."""
    return base64.urlsafe_b64encode(identity.encode()).decode()


def read_page_token(token: str) -> str:
    """The operation of a `page_token_of`. Raises `InvalidArgument`."""
    try:
        identity = base64.b64decode(token, altchars=b"-_", validate=True).decode()
    except ValueError:
        identity = ""
    if not _OPERATION_ID.fullmatch(identity):
        raise InvalidArgument(
            "the page_token is not one that this list has given",
            reason="PAGE_TOKEN",
            help="pass next_page_token of the page before, unchanged, or nothing for the first page",
        )
    return identity
