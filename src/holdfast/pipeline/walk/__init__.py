"""Latent walks against a model, as far as an oracle still agrees."""
