"""Classifiers in files of exported runtimes: one adapter, and a function array → array for each runtime."""
