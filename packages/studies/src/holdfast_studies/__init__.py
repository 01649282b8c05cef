"""Questions asked of many models at once, each one command: ``holdfast study NAME``."""
