"""Files in torchvision's own formats, tiny; nothing is downloaded and no foreign pickle is opened."""

from __future__ import annotations

import hashlib
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest

from holdfast.core.errors import UserError
from holdfast.core.types import ClassKeys
from holdfast.data import load_collection

RNG = np.random.default_rng(1)


@pytest.fixture
def mnist(tmp_path):
    raw = tmp_path / "MNIST/raw"
    raw.mkdir(parents=True)
    images = {}
    for prefix, count in (("train", 5), ("t10k", 3)):
        pixels = images[prefix] = RNG.integers(0, 256, (count, 28, 28), np.uint8)
        (raw / f"{prefix}-images-idx3-ubyte").write_bytes(struct.pack(">IIII", 2051, count, 28, 28) + pixels.tobytes())
        (raw / f"{prefix}-labels-idx1-ubyte").write_bytes(
            struct.pack(">II", 2049, count) + bytes([7, 2, 7, 0, 1][:count])
        )
    return tmp_path, images


def test_mnist(mnist):
    root, images = mnist
    collection = load_collection(f"torchvision:mnist?root={root}&split=train")
    assert (collection.name, collection.classes) == ("mnist", ("0", "1", "2", "7"))
    assert collection.keys["7"] == ClassKeys(labels=("seven",))
    assert [sample.sample_id for sample in collection.samples][:2] == ["train/00000", "train/00001"]
    assert [sample.label for sample in collection.samples] == ["7", "2", "7", "0", "1"]
    assert {sample.split for sample in collection.samples} == {"train"}
    np.testing.assert_array_equal(collection.samples[3].image.load(), np.dstack([images["train"][3]] * 3))
    test = load_collection(f"torchvision:mnist?root={root}")
    assert len(test) == 3 and test.samples[0].split == "test"
    assert np.shares_memory(test.samples[0].image.array.base, test.samples[1].image.array.base)


def test_damaged_mnist(mnist):
    root, _ = mnist
    file = root / "MNIST/raw/t10k-images-idx3-ubyte"
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(UserError, match="mnist cannot be read from"):
        load_collection(f"torchvision:mnist?root={root}")


@pytest.fixture
def cifar10(tmp_path, monkeypatch):
    from torchvision.datasets import CIFAR10

    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()

    def write(name, content):
        (folder / name).write_bytes(pickle.dumps(content))
        return hashlib.md5((folder / name).read_bytes()).hexdigest()

    data = RNG.integers(0, 256, (4, 3072), np.uint8)
    names = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
    sums = {name: write(name, {"data": data, "labels": [3, 5, 3, 9]}) for name in ("data_batch_1", "test_batch")}
    meta = write("batches.meta", {"label_names": names})
    monkeypatch.setattr(CIFAR10, "train_list", [["data_batch_1", sums["data_batch_1"]]])
    monkeypatch.setattr(CIFAR10, "test_list", [["test_batch", sums["test_batch"]]])
    monkeypatch.setattr(CIFAR10, "meta", {"filename": "batches.meta", "key": "label_names", "md5": meta})
    return tmp_path, data


def test_cifar10(cifar10):
    root, data = cifar10
    collection = load_collection(f"torchvision:cifar10?root={root}&split=test")
    assert collection.classes == ("cat", "dog", "truck")
    assert [sample.label for sample in collection.samples] == ["cat", "dog", "cat", "truck"]
    np.testing.assert_array_equal(collection.samples[2].image.load(), data[2].reshape(3, 32, 32).transpose(1, 2, 0))


class Hostile:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_foreign_pickles_are_never_opened(cifar10, tmp_path):
    root, _ = cifar10
    (root / "cifar-10-batches-py/test_batch").write_bytes(pickle.dumps(Hostile(tmp_path / "owned")))
    with pytest.raises(UserError, match=r"cifar10 cannot be read .*not found or corrupted; it is never downloaded"):
        load_collection(f"torchvision:cifar10?root={root}")
    assert not (tmp_path / "owned").exists()


def test_imagenet_with_and_without_names(tmp_path, write_image, write_mask):
    import torch

    for wnid in ("n02012849", "n03126707", "n01440764"):
        write_image(tmp_path / "val" / wnid / "v1.png")
    collection = load_collection(f"torchvision:imagenet?root={tmp_path}")
    assert collection.classes == ("n01440764", "n02012849", "n03126707")
    names = {"n01440764": ("tench", "Tinca tinca"), "n02012849": ("crane",), "n03126707": ("crane",)}
    torch.save((names, []), tmp_path / "meta.bin")
    write_mask(tmp_path / "m/val/n01440764/v1.png")
    collection = load_collection(f"torchvision:imagenet?root={tmp_path}&split=val", masks=tmp_path / "m")
    assert collection.classes == ("tench", "crane (n02012849)", "crane (n03126707)")
    assert collection.keys["tench"] == ClassKeys(wnids=("n01440764",))
    first = collection.samples[0]
    assert (first.sample_id, first.source_id, first.split) == ("val/n01440764/v1",) * 2 + ("val",)
    assert first.image.load().shape == (6, 8, 3) and first.mask.load(6, 8).sum() == 24


def test_a_hostile_meta_file_is_refused(tmp_path, write_image):
    write_image(tmp_path / "val/n01440764/v1.png")
    (tmp_path / "meta.bin").write_bytes(pickle.dumps(Hostile(tmp_path / "owned")))
    with pytest.raises(UserError, match=r"meta.bin' cannot be read"):
        load_collection(f"torchvision:imagenet?root={tmp_path}")
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("torchvision:cifar?root={tmp}", "no torchvision dataset is called 'cifar'; did you mean cifar10"),
        ("torchvision:mnist", "needs its folder: torchvision:mnist\\?root=DIR"),
        ("torchvision:mnist?root={tmp}&split=val", "no split of mnist is called 'val'"),
        ("torchvision:mnist?root={tmp}/none", "the root folder .* does not exist"),
        ("torchvision:mnist?root={tmp}", "mnist cannot be read .*not found; it is never downloaded"),
        ("torchvision:cifar10?root={tmp}", "cifar10 cannot be read .*not found or corrupted"),
        ("torchvision:imagenet?root={tmp}", "needs the unpacked folder"),
    ],
)
def test_mistakes_are_answered_in_one_sentence(tmp_path, text, sentence):
    with pytest.raises(UserError, match=sentence) as caught:
        load_collection(text.format(tmp=tmp_path))
    assert "\n" not in str(caught.value)
