"""Nouns, protocols, names, seeds and schemas. Imports NumPy and PyArrow, nothing else."""
