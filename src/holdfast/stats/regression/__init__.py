"""Regression of accuracy on model, scenario and class, with its residuals."""
