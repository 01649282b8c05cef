"""What the command line, notebooks and services call."""
