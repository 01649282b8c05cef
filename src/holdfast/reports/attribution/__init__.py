"""The section on where a model looks."""
