"""Bringing missing and damaged copies back."""
