"""PURE: decisions of a write proxy."""
