"""Models compared with each other: ranks, the release gate, the choice of a model, sample size."""
