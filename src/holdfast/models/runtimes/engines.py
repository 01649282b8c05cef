"""``openvino:``, ``litert:`` and ``tensorrt:`` files as functions array → array; formats that are code are refused."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import UserError
from holdfast.core.lazy import torch
from holdfast.core.names import Name
from holdfast.models.runtimes.exported import ExportedClassifier, Runtime
from holdfast.models.runtimes.exported import load as load_exported
from holdfast.models.runtimes.onnx import external_files

_SOFTMAX_STEP = 1 / 256
"""Step of quantised outputs of softmax, which TensorFlow Lite fixes."""


def load(name: Name, *, device: str) -> ExportedClassifier:
    """Load a file by the engine that its scheme names; see ``runtimes.exported.load``.

    ``openvino:`` reads OpenVINO's own format (``.xml`` with its ``.bin``), ONNX and TensorFlow Lite; ``litert:``
    TensorFlow Lite, quantised or not, on the processor; ``tensorrt:`` an engine that TensorRT built for this GPU.
    """
    open_file, what, *own = _ENGINES[name.scheme]
    return load_exported(name, device, open_file, what, *own)


def refuse(name: Name, *, device: str) -> NoReturn:
    """Raise a UserError: loading such a file runs what is in it."""
    reader = {"torchscript": "torch.jit.load", "torch-export": "torch.export.load"}.get(
        name.scheme, "torch._inductor.aoti_load_package"
    )
    raise UserError(
        f"{name.scheme}: files are code, and {reader} runs it: load a file that you trust yourself and give the object "
        "to holdfast.evaluate(…, models={'mine': object}), or export the model to ONNX (onnx:FILE)"
    )


def _open_openvino(file: Path, device: str, provider: str = "cpu") -> Runtime:
    if file.suffix not in (".xml", ".onnx", ".tflite"):
        raise UserError(f"openvino: reads .xml, .onnx and .tflite files, not {file.name}")
    weights = file.with_suffix(".bin")
    files = [file, *(external_files(file) if file.suffix == ".onnx" else [])]
    files += [weights] if file.suffix == ".xml" and weights.is_file() else []
    openvino = _without_telemetry()
    core = openvino.Core()
    wanted = provider.upper()
    if wanted.partition(".")[0] not in {known.partition(".")[0] for known in (*core.available_devices, "AUTO")}:
        known = ", ".join(known.lower() for known in core.available_devices)
        raise UserError(f"OpenVINO has no device {provider!r} on this machine; it has {known}")
    try:
        model = core.read_model(file)
        # By default OpenVINO computes in a lower precision where the processor has one.
        exact = {"INFERENCE_PRECISION_HINT": "f32"} if wanted == "CPU" else {}
        compiled = core.compile_model(model, wanted, exact)
        (entry,) = compiled.inputs
    except (RuntimeError, ValueError) as error:
        raise UserError(f"{file.name} is not a model with one input that OpenVINO can load") from error
    shape = [int(side.get_length()) if side.is_static else -1 for side in entry.partial_shape]
    dtype = np.dtype(entry.element_type.to_dtype()).name
    return Runtime(lambda batch: np.asarray(compiled(batch)[0]), shape, _checked_type(dtype, file), files)


def _without_telemetry() -> Any:
    """Return the package openvino, imported without its telemetry."""
    name = "openvino_telemetry"
    if "openvino" not in sys.modules and name not in sys.modules:
        sys.modules[name] = None  # type: ignore[assignment]  # which reads as "not installed"
        try:
            import openvino
        finally:
            del sys.modules[name]
    import openvino

    return openvino


def _open_litert(file: Path, device: str) -> Runtime:
    from ai_edge_litert.interpreter import Interpreter

    try:
        interpreter = Interpreter(model_content=file.read_bytes())
        interpreter.allocate_tensors()
        (entry,), answer = interpreter.get_input_details(), interpreter.get_output_details()[0]
    except (RuntimeError, ValueError) as error:
        raise UserError(f"{file.name} is not a model with one input that LiteRT can load") from error
    step, zero = (float(entry["quantization"][0]) or 1.0), int(entry["quantization"][1])
    out_step, out_zero = float(answer["quantization"][0]), int(answer["quantization"][1])

    def run(batch: NDArray[Any]) -> NDArray[Any]:
        """Return the first output; the interpreter is resized if another number of images comes."""
        if tuple(interpreter.get_input_details()[0]["shape"]) != batch.shape:
            interpreter.resize_tensor_input(entry["index"], batch.shape)
            interpreter.allocate_tensors()
        interpreter.set_tensor(entry["index"], batch)
        interpreter.invoke()
        scores: NDArray[Any] = interpreter.get_tensor(answer["index"])
        return (scores.astype(np.float32) - out_zero) * np.float32(out_step) if out_step else scores

    shape = [int(side) for side in entry["shape_signature"]]
    softmaxed = out_step == _SOFTMAX_STEP and out_zero in (0, -128)
    return Runtime(
        run, shape, _checked_type(np.dtype(entry["dtype"]).name, file), [file], step, zero,
        outputs="probabilities" if softmaxed else "auto",
    )  # fmt: skip


def _open_tensorrt(file: Path, device: str) -> Runtime:
    if not torch.cuda.is_available():
        raise UserError(f"{file.name} is an engine of TensorRT, which needs an NVIDIA GPU; torch sees none here")
    try:
        tensorrt: Any = importlib.import_module("tensorrt")  # NVIDIA's, of no extra: its version is the engine's
    except ModuleNotFoundError as error:
        raise UserError("tensorrt: needs the package tensorrt in the version that built the engine") from error
    engine = tensorrt.Runtime(tensorrt.Logger(tensorrt.Logger.ERROR)).deserialize_cuda_engine(file.read_bytes())
    if engine is None:
        raise UserError(f"{file.name} is not an engine that this TensorRT ({tensorrt.__version__}) and GPU can load")
    names = [engine.get_tensor_name(place) for place in range(engine.num_io_tensors)]
    inputs = [name for name in names if engine.get_tensor_mode(name) == tensorrt.TensorIOMode.INPUT]
    outputs = [name for name in names if name not in inputs]
    if len(inputs) != 1:
        raise UserError(f"{file.name} should take one batch of images, not {len(inputs)} inputs")
    context, place = engine.create_execution_context(), device if device.startswith("cuda") else "cuda"

    def run(batch: NDArray[Any]) -> NDArray[Any]:
        """Return the first output."""
        held = {inputs[0]: torch.from_numpy(batch).to(place)}
        context.set_input_shape(inputs[0], batch.shape)
        for name in outputs:
            dtype = torch.from_numpy(np.empty(0, tensorrt.nptype(engine.get_tensor_dtype(name)))).dtype
            held[name] = torch.empty(tuple(context.get_tensor_shape(name)), dtype=dtype, device=place)
        for name, tensor in held.items():
            context.set_tensor_address(name, tensor.data_ptr())
        stream = torch.cuda.current_stream(torch.device(place))
        if not context.execute_async_v3(stream.cuda_stream):
            raise RuntimeError("TensorRT refused the batch")
        return held[outputs[0]].float().cpu().numpy()

    dtype = np.dtype(tensorrt.nptype(engine.get_tensor_dtype(inputs[0]))).name
    return Runtime(run, list(engine.get_tensor_shape(inputs[0])), _checked_type(dtype, file), [file])


def _checked_type(dtype: str, file: Path) -> str:
    """Return the type of an input; a UserError for one that images cannot be turned into."""
    if dtype not in ("float32", "float16", "uint8", "int8"):
        raise UserError(f"{file.name} takes {dtype}, not floats or bytes")
    return dtype


_ENGINES: Mapping[str, tuple[Any, ...]] = {
    "openvino": (_open_openvino, "OpenVINO file", "provider"),
    "litert": (_open_litert, "LiteRT file"),
    "tensorrt": (_open_tensorrt, "TensorRT engine"),
}
"""How a file is opened, what it is called, and the options that the engine has of its own."""
