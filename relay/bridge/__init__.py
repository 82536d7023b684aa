"""Bridges between regions: the home's side, and the target's."""
