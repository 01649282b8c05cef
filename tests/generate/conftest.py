from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tiny_diffusion import ddim, text_config, tiny_parts, tiny_tokenizer


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test of this room reaches for a hub."""
    import huggingface_hub.constants

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)


def save_vqgan(folder: Path) -> Path:
    import diffusers

    torch.manual_seed(0)
    model = diffusers.VQModel(
        down_block_types=("DownEncoderBlock2D",) * 3, up_block_types=("UpDecoderBlock2D",) * 3,
        block_out_channels=(8, 8, 8), latent_channels=4, sample_size=64, num_vq_embeddings=32, norm_num_groups=4,
    )  # fmt: skip
    with torch.no_grad():  # codes as far apart as latents are, so that quantising does something
        model.quantize.embedding.weight.normal_()
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def vqgan_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_vqgan(tmp_path_factory.mktemp("generators") / "codes")


@pytest.fixture(scope="session")
def pipeline_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Stable Diffusion pipeline of random weights: 32 px, safetensors."""
    import diffusers

    pipeline = diffusers.StableDiffusionPipeline(scheduler=ddim(), **tiny_parts())
    folder = tmp_path_factory.mktemp("pipelines") / "tiny"
    pipeline.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def embedded_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The three folders of the embedded image maker, with random weights."""
    import json

    import diffusers
    import transformers

    root = tmp_path_factory.mktemp("assets")
    torch.manual_seed(0)
    vision = transformers.ConvNextConfig(patch_size=4, hidden_sizes=[8, 8], depths=[1, 1], num_stages=2, image_size=64)
    vision.hidden_size = 8
    config = transformers.VisionTextDualEncoderConfig.from_vision_text_configs(vision, text_config(), projection_dim=16)
    transformers.VisionTextDualEncoderModel(config).save_pretrained(root / "oracle")
    tiny_tokenizer().save_pretrained(root / "oracle")
    save_vqgan(root / "vqgan")
    diffusers.UNet2DConditionModel(
        sample_size=16, in_channels=9, out_channels=4, layers_per_block=1, cross_attention_dim=16, attention_head_dim=2,
        block_out_channels=(8, 8), norm_num_groups=4, down_block_types=("CrossAttnDownBlock2D",) * 2,
        up_block_types=("CrossAttnUpBlock2D",) * 2, class_embed_type="projection",
        projection_class_embeddings_input_dim=16,
    ).save_pretrained(root / "text_to_image" / "unet")  # fmt: skip
    diffusers.FlowMatchEulerDiscreteScheduler().save_pretrained(root / "text_to_image" / "scheduler")
    settings = {
        "size": 64,
        "steps": 3,
        "guidance": 2.0,
        "latent_mean": [0.1, 0, -0.1, 0.2],
        "latent_spread": [1, 2, 1, 0.5],
    }
    (root / "text_to_image" / "settings.json").write_text(json.dumps(settings))
    return {name: root / name for name in ("text_to_image", "vqgan", "oracle")}


@pytest.fixture(scope="session")
def kl_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import diffusers

    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("generators") / "kl"
    diffusers.AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 3, up_block_types=("UpDecoderBlock2D",) * 3,
        block_out_channels=(8, 8, 8), latent_channels=4, norm_num_groups=4, scaling_factor=0.5, shift_factor=0.25,
    ).save_pretrained(folder)  # fmt: skip
    return folder


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import diffusers

    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("generators") / "tiny"
    diffusers.AutoencoderTiny(
        encoder_block_out_channels=(8,) * 3, decoder_block_out_channels=(8,) * 3,
        num_encoder_blocks=(1, 1, 1), num_decoder_blocks=(1, 1, 1),
    ).save_pretrained(folder)  # fmt: skip
    return folder


def small_unet(**changes):
    import diffusers

    torch.manual_seed(0)
    options = {
        "sample_size": 16, "block_out_channels": (8, 8), "layers_per_block": 1, "norm_num_groups": 4,
        "down_block_types": ("DownBlock2D", "AttnDownBlock2D"), "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
    }  # fmt: skip
    return diffusers.UNet2DModel(**(options | changes))


@pytest.fixture(scope="session")
def make_unet() -> Callable[..., Any]:
    return small_unet


@pytest.fixture(scope="session")
def ddim_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pipeline's folder: UNet and scheduler."""
    import diffusers

    folder = tmp_path_factory.mktemp("generators") / "ddim"
    small_unet().save_pretrained(folder / "unet")
    diffusers.DDPMScheduler(beta_schedule="squaredcos_cap_v2").save_pretrained(folder / "scheduler")
    return folder


def small_hvae():
    from holdfast.generators.hvae import Hvae, HvaeConfig

    torch.manual_seed(0)
    return Hvae(
        HvaeConfig(
            image_size=16, width=16, zdim=4, bottleneck_multiple=0.5, num_mixtures=2,
            enc_blocks="16x1,16d2,8x1,8d2,4x1,4d4,1x1", dec_blocks="1x1,4m1,4x1,8m4,8x1,16m8", no_bias_above=8,
        )
    )  # fmt: skip


def save_hvae(folder: Path, module: Any) -> None:
    from safetensors.torch import save_file

    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(dataclasses.asdict(module.config)), encoding="utf-8")
    save_file({key: tensor.contiguous() for key, tensor in module.state_dict().items()}, folder / "model.safetensors")


@pytest.fixture
def fresh_hvae() -> Any:
    return small_hvae()


@pytest.fixture
def hvae_writer() -> Callable[[Path, Any], None]:
    return save_hvae


@pytest.fixture(scope="session")
def hvae_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("generators") / "hvae"
    save_hvae(folder, small_hvae())
    return folder


PYTHON_GENERATORS = '''
import torch


class Halves:
    """The latent is the image at half its size."""

    factor = 2

    def encode(self, batch):
        return torch.nn.functional.avg_pool2d(batch, 2)

    def decode(self, latent):
        return torch.nn.functional.interpolate(latent, scale_factor=2).clamp(0, 1)


class StyleGan(torch.nn.Module):
    """As StyleGAN is called: 8 numbers to 3 layers of 12, those to a picture of 16 pixels."""

    z_dim, c_dim, num_ws, w_dim, img_resolution = 8, 0, 3, 12, 16

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.into = torch.nn.Linear(8, 12)
        self.synthesis = Synthesis()

    def mapping(self, z):
        return torch.tanh(self.into(z))[:, None].repeat(1, 3, 1)


class Synthesis(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(12, 12 * 4 * 4)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(12, 12) for _ in range(2))
        self.out = torch.nn.Conv2d(12, 3, 3, padding=1)

    def forward(self, w, noise_mode="random"):
        hidden = torch.tanh(self.first(w[:, 0])).view(-1, 12, 4, 4)
        for at, layer in enumerate(self.layers):
            hidden = torch.nn.functional.interpolate(hidden, scale_factor=2, mode="bilinear")
            hidden = torch.tanh(hidden * (1 + layer(w[:, at + 1])[:, :, None, None]))
        image = self.out(hidden)
        return image if noise_mode == "const" else image + 0.1 * torch.randn_like(image)


class Conditional(StyleGan):
    c_dim = 5

    def mapping(self, z, c):
        return super().mapping(z) + c.argmax(1).float()[:, None, None]


nothing = 3
'''


@pytest.fixture
def python_generators(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module with generators of the user's, in the working directory."""
    import sys

    (tmp_path / "own_generators.py").write_text(PYTHON_GENERATORS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "own_generators", raising=False)
    return "own_generators"
