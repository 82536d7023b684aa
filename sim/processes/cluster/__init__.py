"""A cluster of real processes on this machine that can be killed, paused and restarted."""
