"""permille coverage: Decides what to record, where and for how long."""
