"""One module for each command: arguments in, calls to the services, rendered answers out."""
