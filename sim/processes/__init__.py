"""Clusters of real processes: demo, drills, benchmarks and the emulated WAN."""
