"""The laws that the state of a world shows, one file each; each keeps what it saw before.

A law is asked every 100 ms of simulated time, and sees the nodes' real cores and the metadata
tree through the world. It yields each breach in words.
"""
