"""Results for other programs: files of the release gate, and experiment trackers."""
