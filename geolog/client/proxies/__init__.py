"""Writing through write proxies: connections, where partitions are, and their remote owners."""
