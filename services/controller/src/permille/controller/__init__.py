"""permille controller: Runs recordings on one node."""

from permille.mesh import plain_structlog as plain_structlog
