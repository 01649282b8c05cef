"""The commands that a storm runs, and the small world of drawn scenes that they read."""

from __future__ import annotations

from dataclasses import dataclass

MODEL, SECOND = "embedded:resnet_rho0", "embedded:resnet_rho95"
DATA = "{world}/photos"
WALK = "--generator pixel: --oracle clip:embedded --steps 2 --step-size 0.004"
SMALL = "--size 32 --folds 2 --epochs 1 --batch-size 4 --device cpu"
MINE = (
    f"--surrogates {SECOND},embedded:mobilenet_rho95 --targets {MODEL} --oracle clip:embedded "
    "--again 0 --least-images 1"
)

WORLD = {
    "scenes": "synth diorama:test?n=48 --scenarios original --out {world}/scenes -q",
    "run": f"eval {DATA} --models {MODEL},{SECOND} --scenarios original,grey --out {{world}}/run -q",
    "other": f"eval {DATA} --models {SECOND} --scenarios original,red --out {{world}}/other -q",
    "series": f"audit watch {{world}}/series {{world}}/run --model {SECOND} -q",
    "pool": "generate --generator embedded: --limit 28 --out {world}/pool -q",
    "hard": f"mine {{world}}/pool {MINE} --out {{world}}/hard -q",
    "board": f"board add {{world}}/run --models {MODEL} --out {{world}}/board",
    "bundle": "share bundle {world}/run --out {world}/run.zip -q",
    "dense": f"perturb {DATA} --models {SECOND} --generator embedded:vqgan --oracle clip:embedded --steps 2 "
    "--step-size 0.1 --keep-latents --out {world}/dense -q",
    "drawn": f"people annotate {DATA} --export {{world}}/drawn.json --state {{world}}/drawn -q",
}
"""Commands that make the world, in this order; ``photos`` are some of the scenes with their masks."""

INFO = (
    '{"link": "https://example.org", "name": "A paper", "authors": "Someone", "venue": "Nowhere 2024", '
    '"architecture": "WideResNet-28-10", "dataset": "cifar10", "eps": "8/255", "clean_acc": "93.68", '
    '"reported": "75.71", "autoattack_acc": "73.71", "additional_data": true, "number_forward_passes": 1}'
)
"""What RobustBench publishes of a model; ``board import`` reads it."""

TABLE = "model,standard_accuracy,perturbed_accuracy,fmr\nLeNet,99.09,27.78,28.04\nResNet18,95.38,52.34,54.88\n"


@dataclass(frozen=True)
class Verb:
    """One command of the storm: ``{out}`` is what it writes, ``{world}`` what it may only read."""

    words: str
    reads: str = ""  # the part of the world whose damage it must notice
    begins_with: str = ""  # the parts of the world that are in {out} before
    code: int = 0  # how it ends undisturbed
    goes_on: bool = True  # whether the same command completes what it left unfinished
    workers: bool = False
    stored: bool = False  # whether it writes to a store (s3://), too
    resumes: bool = False  # whether it makes the rows that a table lacks


VERBS = {
    "eval": Verb(f"eval {DATA} --models {MODEL} --scenarios original,grey --batch-size 2 --out {{out}} -q",
                 workers=True, stored=True, resumes=True),
    "eval --fast": Verb(f"eval {DATA} --models {MODEL} --scenarios original,red --fast --out {{out}} -q", stored=True,
                        resumes=True),
    "synth": Verb(f"synth {DATA} --scenarios original,grey --out {{out}} -q", workers=True, stored=True),
    "mask": Verb("mask {world}/photos/images --out {out} -q", workers=True),
    "ask": Verb(f"ask {DATA} --models {MODEL} --distractor embedded:vit_rho95 --out {{out}} -q", resumes=True),
    "perturb": Verb(f"perturb {DATA} --models {MODEL} {WALK} --limit 3 --keep-images --out {{out}} -q",
                    resumes=True),
    "segment": Verb(f"segment {DATA} --models embedded:unet --scenarios original,grey --out {{out}} -q",
                    resumes=True),
    "train": Verb(f"train {DATA} --architectures timm:test_resnet --scenarios original {SMALL} --out {{out}} -q",
                  stored=True),
    "segment trained": Verb(f"segment {DATA} --architectures smp:FPN@resnet18 --scenarios original {SMALL} "
                            "--out {out} -q"),
    "telltale": Verb(f"study telltale {DATA} --generator embedded:text_to_image --architectures timm:test_resnet "
                   f"{SMALL} --out {{out}} -q"),
    "generate": Verb("generate --generator embedded: --limit 6 --batch-size 2 --out {out} -q", stored=True),
    "mine": Verb(f"mine {{world}}/pool {MINE} --out {{out}} -q", reads="pool"),
    "remedy": Verb(f"mine remedy {{world}}/hard --model {SECOND} --epochs 1 --out {{out}} -q", reads="hard"),
    "modes": Verb("mine modes {world}/hard --out {out}", reads="hard"),
    "explain": Verb("explain {out}/run --limit 2 -q", reads="run", begins_with="run", resumes=True),
    "report": Verb("report {world}/run --resamples 100 --out {out}", reads="run"),
    "choose": Verb("report {world}/run --choose --speed none --resamples 100 --out {out} -q", reads="run"),
    "compare": Verb(f"compare {{world}}/run {{world}}/run --old-model {MODEL} --new-model {SECOND}", reads="run",
                    code=3),
    "bundle": Verb("share bundle {world}/run --out {out}/run.zip -q", reads="run"),
    "open": Verb("share open {world}/run.zip --out {out}/run", reads="run.zip", goes_on=False),
    "board add": Verb("board add {world}/run --out {out}", reads="run"),
    "watch": Verb("audit watch {out}/series {world}/other -q", begins_with="series run"),
    "dossier": Verb("audit dossier {world}/other --no-pictures --out {out}/dossier", reads="other", goes_on=False),
    "board check": Verb("board check {world}/board", reads="board"),
    "board build": Verb("board build {world}/board --workers 1 --out {out}", reads="board"),
    "verify": Verb(f"share verify {{world}}/board --data {DATA} --rows 6 --seed 1 --out {{out}}/compared.csv -q",
                   reads="board"),
    "export huggingface": Verb("share export {world}/run --to huggingface --out {out} -q", reads="run", goes_on=False),
    "export model-index": Verb("share export {world}/run --to model-index --out {out} -q", reads="run", goes_on=False),
    "export fiftyone": Verb("share export {world}/run --to fiftyone --out {out} -q", reads="run", goes_on=False),
    "sparse": Verb("perturb {world}/dense --find-sparse {out}/mask.safetensors --strength 0.5", reads="dense"),
    "study": Verb("study greyscale --quick -q --out {out}"),
    "annotate import": Verb(f"people annotate {DATA} --masks {{out}}/masks --import {{world}}/drawn.json "
                            "--state {out}/state -q", reads="drawn.json"),
    "annotate export": Verb(f"people annotate {DATA} --export {{out}}/coco.json --state {{out}}/state -q"),
    "review export": Verb("people review --export {out}/votes --state {out}/people", begins_with="people"),
    "board import": Verb("board import {world}/Linf/paper.json --out {out}", reads="Linf/paper.json"),
    "split": Verb("data split {out}/photos --folds 2 --out {out}/photos/split.csv", begins_with="photos"),
    "leaks": Verb("data duplicates {world}/photos/images {world}/pool -q"),
    "check": Verb(f"check {MODEL} {DATA} --out {{out}} -q"),
    "audit": Verb("audit table {world}/table.csv"),
    "plan": Verb(f"plan --seconds 1 eval {DATA} --models {MODEL} --scenarios original --out {{out}}/planned"),
}  # fmt: skip
