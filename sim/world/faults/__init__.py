"""Faults: what strikes a simulated world, and whom."""
