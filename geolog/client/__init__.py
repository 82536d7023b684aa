"""Streams from the application's side: the log, its writers and its readers."""
