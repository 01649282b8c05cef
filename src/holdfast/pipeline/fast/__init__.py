"""``eval --fast``: every image is decoded once; all its conditions and models are computed in batches on one device.

The plan is that of ``eval``; ``run.OnePass.execute`` takes the place of ``jobs.execute``. What the pass cannot do (a
condition that only OpenCV makes, a model that is not a torch module with plain preprocessing) the standard evaluator
does in the same command. Answers differ in the last digits: resizing is done with matrices, and on a GPU the networks
compute in bfloat16. So these rows have ids of their own.
"""

from holdfast.pipeline.fast.run import OnePass

__all__ = ["OnePass"]
