"""Servers of a region: storage nodes and ZooKeeper; later proxies, repair and the console."""
