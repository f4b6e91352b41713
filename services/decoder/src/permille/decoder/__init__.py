"""permille decoder: Turns stored sessions into tables and answers questions about them."""

from permille.mesh import plain_structlog as plain_structlog
