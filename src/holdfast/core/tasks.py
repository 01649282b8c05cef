"""What models are asked about pictures. Each task has its rows in the one table, and may have details beside it."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from holdfast.core.objects import DETECTIONS
from holdfast.core.schema import ANSWERS, SEGMENTS


@dataclass(frozen=True)
class Task:
    """A kind of question, and where its answers are stored."""

    name: str  # the value of the column ``task``
    protocol: str = ""  # the value of the column ``protocol``; empty where rows of the task have several
    details: str = ""  # the name of the table below ``details/`` that holds what does not fit into the one table
    columns: pa.Schema | None = None  # the schema of that table; its ``row_id`` is that of the row in the one table


CLASSIFY = Task("classify", "argmax")
"""Which class does the picture show? ``data.labels.outcomes`` turns probabilities into columns."""

SEGMENT = Task("segment", "", "segments", SEGMENTS)
"""Which pixels belong to which class? The protocol says at which size."""

QUESTION = Task("question", "", "answers", ANSWERS)
"""What does a question in words get as an answer? The protocol says which options were named, in which order."""

DETECT = Task("detect", "boxes", "detections", DETECTIONS)
"""Which objects are where? ``details/objects`` has a row per true object, ``details/images`` one per picture."""

MULTILABEL = Task("multilabel")
"""Which labels does the picture have? A row per label; the protocol says from which score on the answer is yes."""

TASKS = {task.name: task for task in (CLASSIFY, SEGMENT, QUESTION, DETECT, MULTILABEL)}
