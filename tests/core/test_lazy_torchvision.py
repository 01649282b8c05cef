"""Import torchvision without torch's compiler."""

import subprocess
import sys

IMPORTED = """
import sys
from holdfast.core.lazy import import_torchvision

torchvision = import_torchvision()
assert import_torchvision() is torchvision
assert "torch._dynamo" not in sys.modules and "sympy" not in sys.modules
import torch
from torchvision.ops import roi_align
from torchvision.ops.roi_align import is_compile_supported
assert roi_align(torch.ones(1, 3, 8, 8), [torch.tensor([[0.0, 0, 4, 4]])], 2).shape == (1, 3, 2, 2)
assert is_compile_supported("cpu") in (True, False)  # asks the compiler itself, which is loaded now
assert torch._dynamo.utils.is_compile_supported is not is_compile_supported
assert torch.compile(lambda values: values + 1, backend="eager")(torch.ones(2)).tolist() == [2, 2]
"""


def test_torchvision_leaves_the_compiler_until_it_is_asked_for():
    ended = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
