"""The pages on which people draw masks and judge images."""
