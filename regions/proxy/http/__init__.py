"""The HTTP port of a write proxy: health, metrics, owners, appends and reads."""
