"""Settings: where they are found, how they are parsed, and what reaches a cluster."""
