"""What `geolog.blocking` and `geolog.aio` stand on: one trio thread, and what crosses to it."""
