"""A named writer whose batches are on the application's own disk until the log has them."""
