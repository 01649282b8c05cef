"""People who draw masks and judge images: who they are, what they are given, what they said, and where it is kept."""
