"""A table of which a file is gone, damaged, away or refused while it is read."""

from __future__ import annotations

import re
from urllib.parse import unquote

import duckdb
from permille.mesh.errors import PermilleError, PermissionDenied, Unavailable
from permille.mesh.exhausted import exhausted
from permille.mesh.table_errors import is_denied
from permille.mesh.whole_sessions import session_of

# What duckdb says of an Arrow stream that ended with an error: a file of the table is gone.
_LOST_STREAM = "reading the stream registered as"
# Where the store is nobody is told who may only ask.
_FILE = re.compile(r"day=[^/'\"\s]+/session_id=[^/'\"\s]+/[^/'\"\s]+\.parquet")


def is_unread(error: Exception) -> bool:
    """Whether it says so, of those of DuckDB and of files."""
    return isinstance(error, duckdb.IOException | OSError) or _LOST_STREAM in str(error)


def unread_table(error: Exception) -> PermilleError:
    """Names the file below its table, as far as whoever read it told, and how to have it again."""
    if lack := exhausted("the decoder", error):
        return lack
    # What a request failed for is told by its URL.
    found = _FILE.search(unquote(str(error)))
    file = found[0] if found else ""
    session_id = session_of(file)
    metadata = {"session_id": session_id} if session_id else {}
    unread = "a table could not be read to its end" + (f", its file {file}" if file else "")
    if is_denied(error):
        return PermissionDenied(
            f"{unread}: the object store does not let the decoder read it",
            reason="STORE_DENIED",
            help="ask again if its credentials were just renewed; else check them with `permille doctor`",
            metadata=metadata,
        )
    return Unavailable(
        unread,
        reason="TABLE_CHANGED",
        help="a session was deleted or decoded again meanwhile, or the store is away: ask again; a file that is gone or"
        f" damaged for good is made anew by `permille report {session_id or 'SESSION'} --again`",
        metadata=metadata,
        retry_after_s=1,
    )
