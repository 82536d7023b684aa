"""In-memory and recording versions of the four seams."""
