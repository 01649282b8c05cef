"""Numbers that hold everywhere: limits against untrusted input, and the number of resamples."""

DEFAULT_MAX_PIXELS = 100_000_000
"""Larger images are refused before they are decoded."""

RESAMPLES = 2_000
"""Resamples of every bootstrap. The end of a 95 % interval is then off by chance by 0.06 standard errors."""
