"""Sessions of named writers whose partitions have owners in other processes."""
