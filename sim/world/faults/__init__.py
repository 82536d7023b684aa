"""The faults of a simulated world, and their targets."""
