"""Studies that train models."""
