"""Adapters: one file a family of models."""
