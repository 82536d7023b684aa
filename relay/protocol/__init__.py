"""PURE: cores of the relay between regions, and the messages of its bridges."""
