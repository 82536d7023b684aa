"""Rings whose every write set adheres: search, repair, and why there is none."""
