"""The draws of a seed: options of worlds, and worlds made for one purpose."""
