"""What TraceRequests mean, without an API server."""
