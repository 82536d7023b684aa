"""The storage node's formats and decisions: pure, no I/O, no clock, no chance."""
