"""Readers of general formats: class folders, COCO, manifests, tar shards, Hugging Face folders, torchvision."""
