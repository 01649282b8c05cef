"""What notebooks and other programs call: the command line's verbs as functions.

```python
import holdfast
run = holdfast.evaluate("photos/", models=["timm:resnet50"], out="runs/first")
run.rows()
```
"""

from __future__ import annotations

from holdfast.api.runs import (
    ask,
    choose,
    compare,
    data_check,
    evaluate,
    explain,
    generate,
    mask,
    mine,
    mine_modes,
    mine_remedy,
    parity,
    perturb,
    segment,
    synth,
    train,
)
from holdfast.data import load_collection
from holdfast.models import load_classifier
from holdfast.results import Results, open_run, report

__all__ = [
    "Results", "ask", "choose", "compare", "data_check", "evaluate", "explain", "generate",
    "load_classifier", "load_collection", "mask", "mine", "mine_modes", "mine_remedy", "open_run", "parity", "perturb",
    "report", "segment", "synth", "train",
]  # fmt: skip
