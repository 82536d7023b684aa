"""The relay as a server: its endpoint, its membership, its bridges."""
