"""Counting coins: a plugin that adds a verb, a scenario, a task, a measure and a report section to Holdfast."""
