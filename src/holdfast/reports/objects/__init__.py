"""Sections on object detectors: verdict, numbers, and images with boxes."""
