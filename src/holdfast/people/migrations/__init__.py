"""The steps from each state of the tables to the next; run by ``people.migrate``."""
