"""Segmenters: adapters of networks that answer with a class per pixel."""
