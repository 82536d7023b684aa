"""Drills: real processes under real load, a real fault, and a verdict in counts."""
