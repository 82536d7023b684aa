"""Streams in metadata: their settings, partitions, owners and segments."""
