"""Storage nodes from a client's side: their locations, and the connections to them."""
