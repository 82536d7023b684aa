"""Deterministic simulation: clusters of the real code in a hostile world, from one seed."""
