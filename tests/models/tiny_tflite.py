"""A TensorFlow Lite file of one fully connected layer, written with LiteRT's own schema."""

from __future__ import annotations

from pathlib import Path

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

SIDE, OUTPUTS = 8, 4
WEIGHTS = np.random.default_rng(0).normal(0, 0.1, (OUTPUTS, SIDE * SIDE * 3)).astype(np.float32)
TYPES = {"float32": schema.TensorType.FLOAT32, "int8": schema.TensorType.INT8, "uint8": schema.TensorType.UINT8}


def save_tflite(file: Path, dtype: str = "float32", *, step: float = 0.0, zero: int = 0) -> Path:
    """Write (1, 8, 8, 3) → (1, 4); ``int8`` inputs are dequantised by the file itself."""

    def tensor(name: str, shape: list[int], kind: int, buffer: int = 0) -> schema.TensorT:
        entry = schema.TensorT()
        entry.name, entry.shape, entry.type, entry.buffer = name, shape, kind, buffer
        return entry

    model, graph = schema.ModelT(), schema.SubGraphT()
    model.version, model.buffers = 3, [schema.BufferT(), schema.BufferT()]
    model.buffers[1].data = np.frombuffer(WEIGHTS.tobytes(), np.uint8)
    kind = TYPES[dtype]
    graph.tensors = [
        tensor("pixels", [1, SIDE, SIDE, 3], kind), tensor("weights", list(WEIGHTS.shape), TYPES["float32"], 1),
        tensor("scores", [1, OUTPUTS], TYPES["float32"]), tensor("numbers", [1, SIDE, SIDE, 3], TYPES["float32"]),
    ]  # fmt: skip
    if dtype != "float32":
        grid = schema.QuantizationParametersT()
        grid.scale, grid.zeroPoint = [step], [zero]
        graph.tensors[0].quantization = grid
    graph.inputs, graph.outputs, graph.operators, model.operatorCodes = [0], [2], [], []
    steps = [] if dtype == "float32" else [(schema.BuiltinOperator.DEQUANTIZE, [0], [3], None, 0)]
    dense = schema.FullyConnectedOptionsT()
    steps.append((schema.BuiltinOperator.FULLY_CONNECTED, [3 if steps else 0, 1, -1], [2], dense,
                  schema.BuiltinOptions.FullyConnectedOptions))  # fmt: skip
    for code, inputs, outputs, options, options_type in steps:
        entry, operator = schema.OperatorCodeT(), schema.OperatorT()
        entry.builtinCode = entry.deprecatedBuiltinCode = code
        entry.version = 2 if code == schema.BuiltinOperator.DEQUANTIZE else 1
        operator.opcodeIndex, operator.inputs, operator.outputs = len(model.operatorCodes), inputs, outputs
        if options is not None:
            operator.builtinOptions, operator.builtinOptionsType = options, options_type
        model.operatorCodes.append(entry)
        graph.operators.append(operator)
    model.subgraphs = [graph]
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    file.write_bytes(bytes(builder.Output()))
    return file
