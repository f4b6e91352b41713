"""What functions have as their module: the path of a file, with its key where a session has several at one path.

As when a program is replaced while its old process still runs, or processes of several containers have one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute
from permille.decoder.domain.archive import MapChange

pc: Any = pyarrow.compute

# No path has one.
_BEHIND_PATH = "\0"


class ModuleBuilds:
    """Of the files that a session's processes mapped. `build_ids`: by module, where it has one."""

    def __init__(self, changes: Iterable[MapChange]) -> None:
        keys: dict[str, dict[str, str]] = {}
        for change in changes:
            keys.setdefault(change.path, {})[change.binary] = change.build_id
        self._several = {path for path, at_path in keys.items() if len(at_path.keys() - {""}) > 1}
        self.build_ids: Mapping[str, str] = {
            self._named(path, key): build_id
            for path, at_path in keys.items()
            for key, build_id in at_path.items()
            if build_id
        }

    def module(self, change: MapChange) -> str:
        """That of what was mapped."""
        return self._named(change.path, change.binary)

    def _named(self, path: str, key: str) -> str:
        return f"{path}{_BEHIND_PATH}{key}" if key and path in self._several else path


def paths_of(modules: pa.Array[Any]) -> pa.Array[Any]:
    """The paths that the modules are of."""
    found: pa.Array[Any] = pc.replace_substring_regex(modules, f"{_BEHIND_PATH}.*", "")
    return found
