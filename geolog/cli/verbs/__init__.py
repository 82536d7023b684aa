"""What each verb of the command does; imported when it is run."""
