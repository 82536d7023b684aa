"""Ledgers from the client's side: connections to storage nodes, writing, reading, recovery."""
