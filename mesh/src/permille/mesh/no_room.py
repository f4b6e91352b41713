"""Which errors of the operating system say that there is no room on a disk."""

from __future__ import annotations

import errno

# The disk's, a quota's, or `ulimit -f`'s: write(2).
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def is_no_room(error: OSError) -> bool:
    """Whether making room, or going elsewhere, is the way out."""
    return error.errno in _NO_ROOM
