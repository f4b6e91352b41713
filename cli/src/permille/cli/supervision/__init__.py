"""The processes of one machine, kept running by `permille up`."""
