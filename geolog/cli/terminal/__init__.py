"""Input and output of the command: tables, JSON, progress, record formats."""
