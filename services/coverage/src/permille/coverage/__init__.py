"""permille coverage: Decides what to record, where and for how long."""

from permille.mesh import plain_structlog as plain_structlog
