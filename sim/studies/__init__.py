"""Studies that ran once: their figures are in docs/MEASUREMENTS.md."""
