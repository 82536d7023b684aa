"""PartitionOpener a partition: taking it over, batches in order, the next ledger, trimming."""
