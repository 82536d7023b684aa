"""Keeping a cluster well: nodes, replacement, ledgers looked into, repair, health."""
