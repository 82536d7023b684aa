"""The trio thread under `geolog.blocking` and `geolog.aio`, and the queues to and from it."""
