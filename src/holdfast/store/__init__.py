"""The run directory: specification, Parquet shards, what is done."""
