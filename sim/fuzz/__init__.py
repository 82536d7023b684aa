"""Fuzzers of the parsers that read what strangers send, guided by coverage."""
