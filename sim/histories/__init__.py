"""Histories: one seed run and judged, many of them, and whether they repeat."""
