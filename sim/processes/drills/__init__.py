"""Drills: real faults under real load on real processes, with a verdict in counts."""
