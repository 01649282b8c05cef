"""Object detectors: average precision, recall, false alarms and what the background does to them."""
