"""The rules of buffer planning, as functions."""
