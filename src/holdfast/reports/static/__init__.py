"""Sections on static conditions: verdicts, accuracy, comparison, regression."""
