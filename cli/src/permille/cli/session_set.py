"""Sessions as a person names them, as the coverage service takes them."""

from __future__ import annotations

from collections.abc import Sequence

from permille.api.coverage.v1 import coverage_pb2
from permille.cli.client import MeshClient
from permille.cli.session_list import chosen, list_sessions
from permille.mesh.errors import InvalidArgument

_OPERATION = "operations/"


async def session_sets(client: MeshClient, *given: Sequence[str]) -> list[coverage_pb2.SessionSet]:
    """One set for each group of words: sessions (name, id, beginning of an id, `latest`), or one `operations/<id>`.

    Raises what `chosen` raises, `InvalidArgument` for an operation among sessions.
    """
    named = [word for words in given for word in words if not word.startswith(_OPERATION)]
    listed = await list_sessions(client) if named else None
    sets = []
    for words in given:
        operations = [word for word in words if word.startswith(_OPERATION)]
        if operations and len(words) > 1:
            raise InvalidArgument(
                f"{operations[0]} cannot be put together with others",
                reason="SESSION_SET",
                help="give one operation, or sessions",
            )
        if operations:
            sets.append(coverage_pb2.SessionSet(operation=operations[0]))
        elif listed is not None:
            sets.append(coverage_pb2.SessionSet(sessions=[chosen(listed, word).name for word in words]))
    return sets
