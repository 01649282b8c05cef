"""Sections on object detectors: verdict, numbers, and pictures with boxes."""
