"""What metadata says of streams: partitions, segments, settings, the catalog."""
