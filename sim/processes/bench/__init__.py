"""Measures geolog beside the floor that the same disk gives without it, in the same run."""
