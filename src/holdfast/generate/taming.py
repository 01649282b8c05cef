"""The original VQGAN checkpoints of taming-transformers (``vqgan_imagenet_f16_16384``) as diffusers' VQModel.

Such a ``.ckpt`` is a pickle with the training's own objects beside the weights. Torch's reader for weights reads it;
every class and function that it does not know stands for an empty object, so that nothing of the file runs.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import UserError, first_line

if TYPE_CHECKING:
    import torch

_PARTS = ("encoder.", "decoder.", "quantize.", "quant_conv.", "post_quant_conv.")
_GROUPS = 32
_ATTENTION = {"norm": "group_norm", "q": "to_q", "k": "to_k", "v": "to_v", "proj_out": "to_out.0"}
_RENAMED = (
    (r"\.mid\.block_([12])\.", lambda found: f".mid_block.resnets.{int(found[1]) - 1}."),
    (r"\.mid\.attn_1\.", lambda found: ".mid_block.attentions.0."),
    (r"\.(down|up)\.(\d+)\.block\.", r".\1_blocks.\2.resnets."),
    (r"\.(down|up)\.(\d+)\.attn\.", r".\1_blocks.\2.attentions."),
    (r"\.(down|up)\.(\d+)\.(down|up)sample\.", r".\1_blocks.\2.\3samplers.0."),
    (r"\.nin_shortcut\.", ".conv_shortcut."),
    (r"coder\.norm_out\.", "coder.conv_norm_out."),
)


class Inert:
    """Stands for every object that is no tensor: takes whatever it is given and does nothing with it."""

    def __new__(cls, *_: Any, **__: Any) -> Inert:
        """An empty one."""
        return super().__new__(cls)

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __setstate__(self, _: Any) -> None:
        pass


def load_taming(file: Path) -> Any:
    """The VQModel of a checkpoint file; its size and depth follow from the shapes of its weights."""
    state = {key: value for key, value in read_state(file).items() if key.startswith(_PARTS)}
    if "quantize.embedding.weight" not in state or "encoder.conv_in.weight" not in state:
        raise UserError(
            f"{file.name} holds no VQGAN of taming-transformers: it has no encoder and codebook by its names"
        )
    try:
        model = _build(state)
        model.load_state_dict(renamed(state, len(model.config.block_out_channels)))
    except (RuntimeError, KeyError, ValueError, IndexError) as error:
        raise UserError(f"{file.name} is no VQGAN that can be used here: {first_line(error)}") from error
    return model


def read_state(file: Path) -> dict[str, torch.Tensor]:
    """The tensors by name, without running anything else that the file holds."""
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        if file.suffix == ".safetensors":
            return load_file(file)
        unknown = torch.serialization.get_unsafe_globals_in_checkpoint(file)
        with torch.serialization.safe_globals([(Inert, one) for one in unknown]):
            content = torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise UserError(f"{file.name} is refused because reading it would run code: {first_line(error)}") from error
    except (RuntimeError, EOFError, ValueError, TypeError, KeyError, OSError, SafetensorError) as error:
        raise UserError(f"{file.name} is not a checkpoint that torch can read: {first_line(error)}") from error
    inner = content.get("state_dict", content) if isinstance(content, Mapping) else {}
    if not isinstance(inner, Mapping):
        inner = {}
    return {str(key): value for key, value in inner.items() if isinstance(value, torch.Tensor)}


def renamed(state: Mapping[str, torch.Tensor], depth: int) -> dict[str, torch.Tensor]:
    """Diffusers' names of taming's weights; ``depth`` is the number of resolutions."""
    made = {}
    for old, weight in state.items():
        key = old
        for pattern, new in _RENAMED:
            key = re.sub(pattern, new, key)
        # taming counts the decoder's blocks from the finest, diffusers in the order in which they run
        key = re.sub(r"\.up_blocks\.(\d+)\.", lambda found: f".up_blocks.{depth - 1 - int(found[1])}.", key)
        if ".attentions." in key:
            head, part, kind = re.fullmatch(r"(.*\.attentions\.\d+)\.(\w+)\.(\w+)", key).groups()  # type: ignore[union-attr]
            key = f"{head}.{_ATTENTION[part]}.{kind}"
            weight = weight.flatten(1) if weight.ndim == 4 else weight  # a 1 × 1 convolution is a linear layer
        made[key] = weight
    return made


def _build(state: Mapping[str, torch.Tensor]) -> Any:
    import diffusers

    depth = 1 + max(int(found[1]) for key in state if (found := re.match(r"encoder\.down\.(\d+)\.block\.", key)))
    layers = 1 + max(int(found[1]) for key in state if (found := re.match(r"encoder\.down\.0\.block\.(\d+)\.", key)))

    def kinds(part: str, plain: str) -> tuple[str, ...]:
        levels = range(depth) if part == "encoder.down" else reversed(range(depth))
        return tuple(f"Attn{plain}" if f"{part}.{level}.attn.0.q.weight" in state else plain for level in levels)

    codes, code_channels = state["quantize.embedding.weight"].shape
    return diffusers.VQModel(
        down_block_types=kinds("encoder.down", "DownEncoderBlock2D"),
        up_block_types=kinds("decoder.up", "UpDecoderBlock2D"),
        block_out_channels=tuple(
            state[f"encoder.down.{level}.block.0.conv1.weight"].shape[0] for level in range(depth)
        ),
        layers_per_block=layers,
        latent_channels=state["encoder.conv_out.weight"].shape[0],
        num_vq_embeddings=codes,
        vq_embed_dim=code_channels,
        norm_num_groups=_GROUPS,
    )
