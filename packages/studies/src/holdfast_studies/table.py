"""The studies by name, registered when a command asks for them."""

from __future__ import annotations

from holdfast import registry

TABLE = (
    ("dose", "trained.dose:STUDY", "how much models rely on the background, by how far their training let them"),
    (
        "background-truth",
        "background_truth:STUDY",
        "the pasted estimate of the background's effect against the true one",
    ),
    (
        "detectors",
        "trained.detectors:STUDY",
        "the same of object detectors: what they lose, by the tie in their training",
    ),
    ("transfer", "walking.transfer:STUDY", "images made against each model, shown to all the others"),
    ("start", "walking.walk_settings:START_STUDY", "walks from the image itself against walks from an FGSM image"),
    ("step-size", "walking.walk_settings:STEP_SIZE_STUDY", "validated share and FMR by the size of a walk's steps"),
    ("generators", "generators:STUDY", "the same prompts through two generations of image maker: hard rate, validity"),
    (
        "generator-swap",
        "walking.walk_settings:GENERATOR_SWAP_STUDY",
        "the models' order by FMR under several generators",
    ),
    ("oracle-swap", "walking.oracles:SWAP_STUDY", "FMR under several oracles, and how far these agree"),
    ("oracle-attack", "walking.oracles:ATTACK_STUDY", "the oracle itself led astray step by step, next to classifiers"),
    (
        "adversarial-training",
        "trained.ways_of_training:ADVERSARIAL_STUDY",
        "plain against PGD-trained models, images swapped both ways",
    ),
    (
        "augmentation",
        "trained.augmentation:STUDY",
        "perturbed copies of training scenes as augmentation, then tested again",
    ),
    (
        "robust-training",
        "trained.ways_of_training:ROBUST_STUDY",
        "ways of robust training: static against dynamic order",
    ),
    ("greyscale", "trained.ways_of_training:GREYSCALE_STUDY", "a model trained without colour against one with it"),
    ("heads", "trained.ways_of_training:HEADS_STUDY", "FMR against the number of attention heads of a small Swin"),
    ("prompts", "prompts:STUDY", "ways to ask for a generated background: how real they look, what they cost"),
    ("realism", "realism:STUDY", "how real and varied the images of a pool are, and what they show unasked"),
    ("metrics", "metrics:STUDY", "do robustness metrics rank models alike, and as accuracy on other data does?"),
    ("ximagenet12", "ximagenet12:STUDY", "EX1, EX2 and EX3 of XIMAGENET-12 on drawn scenes, with what its paper shows"),
    ("pooling", "pooling:STUDY", "mean and variance of a benchmark pooled with generated images, simulated"),
    ("masks", "masks:STUDY", "how scores and verdicts move with the quality of the masks"),
)
for _name, _target, _summary in TABLE:
    registry.studies.register(_name, f"holdfast_studies.{_target}", summary=_summary)
