"""A small training that can be run as a process and killed: python training_job.py FOLDER."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import torch

from holdfast.training import Epoch, Fitted, TrainingOptions, fit, one_cycle

EPOCHS = 6


def net() -> torch.nn.Module:
    torch.manual_seed(5)
    return torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(16, 3)
    )


def batches(epoch: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Endless; the class is the largest of the first three numbers."""
    while True:
        numbers = torch.randn(32, 8)
        yield numbers, numbers[:, :3].argmax(1)


def loss(model: torch.nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> Mapping[str, torch.Tensor]:
    logits = model(batch[0])
    value = torch.nn.functional.cross_entropy(logits, batch[1])
    return {"loss": value, "accuracy": (logits.argmax(1) == batch[1]).float().mean()}


def train(
    checkpoints: Path | None, on_epoch: Callable[[Epoch], Mapping[str, float] | None] | None = None, **changes: object
) -> Fitted:
    model = net()
    settings = {"epochs": EPOCHS, "steps_per_epoch": 20, "seed": 1, "average": 0.9, "on_cpu": True, **changes}
    return fit(
        model,
        batches,
        loss,
        torch.optim.AdamW(model.parameters(), lr=0.02),
        TrainingOptions(checkpoints=checkpoints, **settings),  # type: ignore[arg-type]
        schedule=one_cycle,
        on_epoch=on_epoch,
    )


def numbers_of(fitted: Fitted) -> dict[str, object]:
    """Everything but the time it took."""
    history = [{key: value for key, value in row.items() if key != "seconds"} for row in fitted.history]
    weights = {key: value.tolist() for key, value in fitted.model.state_dict().items()}
    return {"history": history, "weights": weights, "complete": fitted.complete}


def _announce(epoch: Epoch) -> None:
    print(f"epoch {epoch.number}", flush=True)
    time.sleep(0.3)


if __name__ == "__main__":
    print("ended in", json.dumps(numbers_of(train(Path(sys.argv[1]), _announce))))
