"""What runs in a region: storage nodes; proxies, repair and the console have room here."""
