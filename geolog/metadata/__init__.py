"""The metadata seam, its in-memory store, and ZooKeeper behind it."""
