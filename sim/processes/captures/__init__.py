"""Pictures of the command at work, taken from what it really prints, for the documentation."""
