"""Defects put into the real code on purpose: a simulator that misses them proves nothing."""
