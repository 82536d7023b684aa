"""Relays of the cluster, as a client sees them: reports of their links."""
