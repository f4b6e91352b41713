"""A dataclass as etcd has it, which another release may have written."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def stored(record: DataclassInstance) -> bytes:
    """As JSON, by the names of its fields."""
    return json.dumps(asdict(record), sort_keys=True).encode()


def fields_of(kind: type[DataclassInstance], told: dict[str, Any]) -> dict[str, Any]:
    """What of a stored record is a field here: a later release may know more."""
    names = {field.name for field in fields(kind)}
    return {name: value for name, value in told.items() if name in names}
