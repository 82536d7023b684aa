"""A cluster of real processes on this machine, to be killed, paused and started again."""
