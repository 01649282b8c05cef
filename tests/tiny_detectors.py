"""Detectors of random weights, saved as transformers saves them."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def save_rt_detr(folder: Path, classes: list[str]) -> tuple[Any, Any]:
    """RT-DETR with a small ResNet; returns network and processor."""
    import torch
    import transformers

    torch.manual_seed(0)
    backbone = transformers.RTDetrResNetConfig(
        embedding_size=8, hidden_sizes=[8, 8, 16, 16], depths=[1, 1, 1, 1], layer_type="basic",
        out_features=["stage2", "stage3", "stage4"],
    )  # fmt: skip
    config = transformers.RTDetrConfig(
        backbone_config=backbone, encoder_in_channels=[8, 16, 16], encoder_hidden_dim=16, encoder_ffn_dim=16,
        encoder_attention_heads=2, d_model=16, decoder_in_channels=[16, 16, 16], decoder_ffn_dim=16, decoder_layers=2,
        decoder_attention_heads=2, num_queries=8, num_denoising=0, id2label=dict(enumerate(classes)),
        label2id={name: at for at, name in enumerate(classes)},
    )  # fmt: skip
    network = transformers.RTDetrForObjectDetection(config).eval()
    network.save_pretrained(folder)
    processor = transformers.RTDetrImageProcessor(size={"height": 64, "width": 64})
    processor.save_pretrained(folder)
    return network, processor
