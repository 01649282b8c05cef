"""Training one's own classifiers within scenarios: recipes, jobs, curves, and rows of the one table."""
