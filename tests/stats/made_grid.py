"""Counts with known truth, straight from arrays: those of the register of promises."""

from promises.worlds import clustered, counts_of, grid_of

__all__ = ["clustered", "counts_of", "grid_of"]
