"""Counts of rows, accuracies with intervals, and the bootstrap: what every other statistic starts from."""
