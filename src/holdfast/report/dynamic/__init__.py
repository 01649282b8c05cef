"""Sections on latent walks."""
