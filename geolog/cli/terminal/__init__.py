"""What the command reads from stdin and prints: tables, JSON, progress, record formats."""
