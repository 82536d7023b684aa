"""Pictures of the command's real output, for the documentation."""
