"""Where models look: maps of a run's pictures, and what they have to do with its answers."""
