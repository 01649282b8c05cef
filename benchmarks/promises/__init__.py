"""The register of promises: every rate that docs/statistics states, simulated where the truth is known."""
