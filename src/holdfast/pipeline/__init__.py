"""Where rooms meet: one module a verb."""
