"""One training loop, used by recipes, studies and the ``train`` verb."""

from holdfast.training.loop import DivergedError, Epoch, Fitted, TooLargeError, TrainingOptions, fit, one_cycle

__all__ = ["DivergedError", "Epoch", "Fitted", "TooLargeError", "TrainingOptions", "fit", "one_cycle"]
