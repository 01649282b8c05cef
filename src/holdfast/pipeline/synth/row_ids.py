"""What renderings are called before they are made."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import lru_cache
from json.encoder import encode_basestring

from holdfast.core.fingerprint import canonical_json
from holdfast.core.types import Sample
from holdfast.pipeline.generate.backgrounds import Painter
from holdfast.pipeline.samples import Prepared
from holdfast.scenarios import Condition


def rendering_ids(
    prepared: Prepared,
    sample: Sample,
    conditions: Sequence[Condition],
    painter: Painter | None,
    *,
    seed: int,
    format: str,
    quality: int,
) -> Iterator[str]:
    """Yield row ids, which change with image, mask, donors, prompt, generator, condition and encoding.

    The text that is hashed is canonical JSON; conditions of a sample share most of it, so it is put together of pieces.
    """
    own = canonical_json([sample.sample_id, sample.source_id, sample.label, sample.split, sample.fold, sample.licence])
    image = encode_basestring(prepared.images[sample.sample_id])
    mask = encode_basestring(prepared.masks[sample.sample_id])
    encoding = canonical_json([format, quality if format == "jpeg" else 0])
    middle = f'"encoding":{encoding},"image":{image},"mask":{mask}'
    for condition in conditions:
        definition = condition.definition
        what = _spelled(condition.scenario, condition.variant, condition.parameters_json)
        painted = f'"painted":{canonical_json(painter.identity(sample))},' if painter and definition.paints else ""
        pool = encode_basestring(prepared.pool_fingerprint if definition.donor else "")
        text = f'{{"condition":{what},{middle},{painted}"pool":{pool},"sample":{own},"seed":{seed}}}'
        yield hashlib.sha256(text.encode()).hexdigest()[:32]


@lru_cache(maxsize=1024)
def _spelled(*texts: str) -> str:
    return canonical_json(texts)
