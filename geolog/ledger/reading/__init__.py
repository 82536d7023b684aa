"""Reading entries from replicas, nearest first."""
