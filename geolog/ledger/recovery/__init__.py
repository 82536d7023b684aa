"""Fencing a ledger, agreeing on its last entry, and closing it."""
