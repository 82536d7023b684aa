"""Applications of a simulated world: writers, readers, operators."""
