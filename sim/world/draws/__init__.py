"""What a seed draws: options of worlds, and worlds made for one thing."""
