"""Pure functions table → table. Nothing here knows a model, a file or a run."""
