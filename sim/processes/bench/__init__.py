"""Measures geolog against a floor: the same disk without geolog, in the same run."""
