"""One-off studies; docs/MEASUREMENTS.md has their figures."""
