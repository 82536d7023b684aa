"""PURE: what clients and write proxies say to each other, as values and as text."""
