"""A small exhaustive model of the ledger protocol, made of its real cores."""
