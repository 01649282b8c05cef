"""``holdfast eval``: images × conditions × models → rows of the one table."""
