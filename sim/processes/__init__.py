"""Clusters of real processes: demo, drills, benchmarks, the emulated WAN."""
