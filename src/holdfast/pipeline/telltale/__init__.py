"""Telling generated from real: the three-way classifier of original, generated and random backgrounds."""
