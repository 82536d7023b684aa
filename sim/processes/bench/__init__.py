"""Benchmarks: each run also measures the same disk without geolog, as the floor."""
