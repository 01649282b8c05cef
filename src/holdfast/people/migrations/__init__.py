"""Migrations of the tables, run by ``people.database``."""
