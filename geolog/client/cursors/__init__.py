"""Cursors: readers that keep their positions in metadata."""
