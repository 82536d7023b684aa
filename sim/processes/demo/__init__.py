"""The main job on real input: flights are written, a region is killed, and nothing is lost."""
