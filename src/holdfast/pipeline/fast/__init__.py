"""``eval --fast``: every image decoded once, all conditions and all models of it in batches on one device.

What cannot be done so (a condition that only OpenCV makes, a model that is no torch module with a plain preparation)
goes the ordinary way in the same command. The answers are those of the ordinary way but for last digits: resizing is
done with matrices, and on a GPU the networks compute in bfloat16. So these rows bear names of their own.
"""

from holdfast.pipeline.fast.run import OnePass

__all__ = ["OnePass"]
