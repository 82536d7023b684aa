"""Writing one ledger: its window, its members, and their replacements."""
