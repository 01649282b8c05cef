"""The register of promises: every rate that docs/statistics states, simulated if the truth is known."""
