"""From data to text, tables and pages. Pure: no calls, no files, no clock."""
