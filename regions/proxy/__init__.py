"""Write proxies: they own partitions, and append and read on behalf of clients."""
