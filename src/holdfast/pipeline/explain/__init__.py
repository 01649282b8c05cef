"""Where models look: maps of a run's images, and what they have to do with its answers."""
