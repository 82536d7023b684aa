"""Writing a stream: records to batches, one lane for each partition, answers, repeats."""
