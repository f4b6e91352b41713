"""Plans trace buffers by how the target uses its cores or threads, within a memory budget."""

from permille.mesh import plain_structlog as plain_structlog
