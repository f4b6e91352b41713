"""From a recording made elsewhere to a session."""
