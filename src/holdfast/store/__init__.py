"""The run directory: specification, Parquet shards, what is done."""

from holdfast.store.parts import Parts, write_json, write_table, writing
from holdfast.store.run import Run

__all__ = ["Parts", "Run", "write_json", "write_table", "writing"]
