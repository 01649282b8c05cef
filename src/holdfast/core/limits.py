"""Limits against untrusted input."""

DEFAULT_MAX_PIXELS = 100_000_000
"""Larger images are refused before they are decoded."""
