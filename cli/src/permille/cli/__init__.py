"""The permille command: a client of the services, nothing else."""
