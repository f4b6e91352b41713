"""The decoder between the wire and its domain."""
