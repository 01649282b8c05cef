from __future__ import annotations

import pandas as pd

from holdfast.reports.trained.training import EPOCHS_SHOWN, lines, thinned


def test_long_curves_are_thinned_and_keep_their_ends() -> None:
    """One of two trainings stopped early, at an epoch that thinning alone would leave out."""
    ends = {"long": 4 * EPOCHS_SHOWN, "short": 4 * EPOCHS_SHOWN - 3}
    curves = pd.DataFrame(
        [("grey", model, "validation", fold, epoch, epoch / 1000 + fold) for model, end in ends.items()
         for fold in (0, 1) for epoch in range(1, end + 1)],
        columns=["trained_on", "model", "split", "fold", "epoch", "miou"],
    )  # fmt: skip
    found = thinned(curves, ["miou"])
    assert found[found["last"]].set_index("model")["epoch"].to_dict() == ends
    assert found["epoch"].min() == 1 and len(found) <= 2 * (EPOCHS_SHOWN + 2)
    assert (found["miou"] - found["epoch"] / 1000 - 0.5).abs().max() < 1e-9, "means over folds"


def test_epochs_on_the_axis_are_whole() -> None:
    frame = pd.DataFrame(
        {"panel": "grey", "position": 0, "model": "m", "split": "train", "epoch": [1, 2], "value": [0.1, 0.2]}
    )
    chart = lines(frame, 800, models=["m"], share=True)
    assert chart["spec"]["layer"][0]["encoding"]["x"]["axis"]["values"] == [1, 2]
