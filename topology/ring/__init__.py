"""Rings whose every write set adheres: search, repair, and proofs that there is none."""
