"""Mask makers."""
