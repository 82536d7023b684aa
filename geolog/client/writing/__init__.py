"""Writing a stream: batches, one lane per partition, answers, repeated records."""
