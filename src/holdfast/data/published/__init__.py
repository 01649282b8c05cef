"""Readers of published test sets, each in the layout of its release."""
