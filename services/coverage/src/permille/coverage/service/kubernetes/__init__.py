"""The operator: TraceRequests become coverage operations."""
