"""Asking the members of fragments, and in which order."""
