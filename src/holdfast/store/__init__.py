"""The run directory: its specification and its Parquet tables, on the disk or in an object store."""

from holdfast.store.copies import as_photos, copies_of
from holdfast.store.parts import Parts, read_json, read_table, write_json, write_table, writing
from holdfast.store.remote import delivered, fetched, in_store, workplace
from holdfast.store.run import Run, other_data, unmixed

__all__ = [
    "Parts",
    "Run",
    "as_photos",
    "copies_of",
    "delivered",
    "fetched",
    "in_store",
    "other_data",
    "read_json",
    "read_table",
    "unmixed",
    "workplace",
    "write_json",
    "write_table",
    "writing",
]
