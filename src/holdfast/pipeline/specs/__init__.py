"""What every verb can be asked: each option declared once, importable without anything heavy."""

from holdfast.pipeline.specs.rows import *  # noqa: F403
from holdfast.pipeline.specs.training import *  # noqa: F403
