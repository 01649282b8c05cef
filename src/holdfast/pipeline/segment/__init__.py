"""Segmenters, trained here or by others: pixels and boundaries counted into rows of the one table and their details."""
