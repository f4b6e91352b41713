"""permille controller: Runs recordings on one node."""
