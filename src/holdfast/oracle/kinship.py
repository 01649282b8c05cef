"""Whether a judge is related to whom it judges."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.oracle.lineage import Lineage, lineages


def kinship(
    model_name: str, oracle_name: str, generator_name: str = "", *, trained_with: Sequence[str] = ()
) -> list[str]:
    """Warnings, one sentence each, where model under test, oracle and generator have something in common.

    Shared weights, architecture family and training data make an oracle blind where the model is: it rejects what
    the model gets wrong for the same reason, and FMR rises. A model that was trained with images of the generator
    has seen what it is tested on.

    Args:
        model_name: of the model under test.
        oracle_name: of the oracle; of an ensemble every member counts.
        generator_name: of the latent generator, '' where there is none.
        trained_with: generators whose images the model was trained with, beyond what its own card says.
    """
    warnings = []
    (model,) = lineages(model_name)
    for judge in lineages(oracle_name):
        if judge.model == model.model:
            warnings.append(f"{model.model} is judged by itself: it and the oracle are the same weights.")
            continue
        if model.family and judge.family == model.family:
            warnings.append(f"{model.model} and its oracle {judge.model} are of one family, {model.family}.")
        warnings += [
            f"{model.model} and its oracle {judge.model} were both trained on {data}."
            for data in sorted(model.data & judge.data)
        ]
    used = _plain(generator_name)
    if used and used in {_plain(one) for one in (*model.trained_with, *trained_with)}:
        warnings.append(f"{model.model} was trained with images of {used}, the generator that changes its test images.")
    return warnings


def _plain(name: str) -> str:
    return name.partition("?")[0]


__all__ = ["Lineage", "kinship", "lineages"]
