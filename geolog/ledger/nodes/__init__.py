"""Storage nodes as a client knows them: where they are, and connections to them."""
