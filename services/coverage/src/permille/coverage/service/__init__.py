"""CoverageService on the wire, and the work behind its operations."""
