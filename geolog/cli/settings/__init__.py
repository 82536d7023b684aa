"""Settings: their sources, their file, and the page that documents them."""
