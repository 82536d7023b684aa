"""The world as an adversary: here the real code meets every fault we can think of."""
