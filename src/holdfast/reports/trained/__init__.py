"""Sections on training, segmentation and detection."""
