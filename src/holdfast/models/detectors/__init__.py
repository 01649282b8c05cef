"""Adapters of object detectors, one file per family; ``batched.py`` has what they share."""
