"""The laws, one file each; a law keeps the earlier state that it compares with.

A law is called every 100 ms of simulated time, and sees the nodes' real cores and the metadata
tree through the world. It yields each breach in words.
"""
