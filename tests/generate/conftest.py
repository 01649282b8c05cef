from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test of this room reaches for a hub."""
    import huggingface_hub.constants

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)


def tiny_tokenizer(length: int = 20):
    import tokenizers
    import transformers
    from tokenizers import models, pre_tokenizers, processors

    words = ["[pad]", "[unk]", "[begin]", "[end]", "a", "fox", "whale", "in", "the", "snow", "sea"]
    inner = tokenizers.Tokenizer(models.WordLevel({word: at for at, word in enumerate(words)}, unk_token="[unk]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.post_processor = processors.TemplateProcessing(
        single="[begin] $A [end]", special_tokens=[("[begin]", 2), ("[end]", 3)]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="[pad]", unk_token="[unk]", bos_token="[begin]", eos_token="[end]",
        model_max_length=length,
    )  # fmt: skip


def text_config(length: int = 20):
    import transformers

    return transformers.CLIPTextConfig(
        vocab_size=11, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=length, bos_token_id=2, eos_token_id=3, pad_token_id=0, projection_dim=16,
    )  # fmt: skip


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
    import transformers

    torch.manual_seed(0)
    blocks = {"block_out_channels": (8, 16), "norm_num_groups": 4}
    unet = diffusers.UNet2DConditionModel(
        sample_size=16, layers_per_block=1, cross_attention_dim=16, attention_head_dim=2,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        **blocks,
    )  # fmt: skip
    vae = diffusers.AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        latent_channels=4,
        **blocks,
    )
    scheduler = diffusers.DDIMScheduler(num_train_timesteps=100, steps_offset=1, clip_sample=False)
    pipeline = diffusers.StableDiffusionPipeline(
        vae=vae, text_encoder=transformers.CLIPTextModel(text_config()), tokenizer=tiny_tokenizer(), unet=unet,
        scheduler=scheduler, safety_checker=None, feature_extractor=None,
        requires_safety_checker=False,
    )  # fmt: skip
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
