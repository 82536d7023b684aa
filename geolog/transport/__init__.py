"""The transport seam, and TCP behind it."""
