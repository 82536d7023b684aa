"""The ledger and stream protocols as state machines: no I/O, clock, chance or log lines."""
