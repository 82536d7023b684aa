"""The world as an adversary: where the real code will meet every fault we can think of."""
