"""Exported questions, run by inspect_ai and loaded by lmms-eval themselves, each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.core.errors import UserError
from holdfast_exchange.export import export

INSPECT = '''
import base64, json, sys
from pathlib import Path

from inspect_ai import eval
from inspect_ai.model import ModelAPI, ModelOutput, modelapi

folder = Path(sys.argv[1])
lines = [json.loads(line) for line in (folder / "samples.jsonl").read_text().splitlines()]
records = {(folder / line["input"][0]["content"][1]["image"]).read_bytes(): line for line in lines}

@modelapi(name="known")
class Known(ModelAPI):
    """Right about originals, wrong under every condition; it knows a question by the picture it is shown."""
    async def count_text_tokens(self, text):
        return len(text)
    async def generate(self, input, tools, tool_choice, config):
        image = next(part.image for part in input[-1].content if part.type == "image")
        record = records[base64.b64decode(image.partition("base64,")[2])]
        assert all(f") {name}" in input[-1].text for name in record["choices"])
        right = record["metadata"]["condition"] == "original"
        letter = record["target"] if right else "AB"[record["target"] == "A"]
        return ModelOutput.from_content("known", f"ANSWER: {letter}")

(log,) = eval(str(folder / "task.py"), model="known/model", display="none", log_dir=sys.argv[2])
scores = {key: value.value for score in log.results.scores for key, value in score.metrics.items()}
print(json.dumps([log.status, len(log.samples), scores]))
'''

LMMS = """
import json, sys

from lmms_eval.tasks import TaskManager, get_task_dict

manager = TaskManager(include_path=".", include_defaults=False)
(tasks,) = get_task_dict(["holdfast_set"], manager).values()
told = {}
for name, task in tasks.items():
    docs = list(task.test_docs())
    judged = [
        task.aggregation()["accuracy"]([task.process_results(doc, [say(doc)])["accuracy"] for doc in docs])
        for say in (lambda doc: doc["answer"] + ".", lambda doc: doc["label"].replace("_", " "), lambda doc: "Z")
    ]
    told[name] = [judged, task.doc_to_visual(docs[0])[0].size, task.doc_to_text(docs[0]), docs[0]["label"]]
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a set that Holdfast made: six drawn scenes, each as it is and on grey."""
    folder = tmp_path_factory.mktemp("made") / "set"
    holdfast.synth("diorama:test?n=6&size=64", scenarios="original,grey", out=folder, workers=1)
    return folder


def answer_of(script: str, *arguments: Any, cwd: Path) -> Any:
    environment = {**os.environ, "HF_HOME": str(cwd / "hf"), "HF_DATASETS_OFFLINE": "1", "NO_COLOR": "1"}
    command = [sys.executable, "-c", script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment)
    assert not done.returncode, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_inspect_ai_runs_the_task_and_splits_it_by_condition(made: Path, tmp_path: Path) -> None:
    pytest.importorskip("inspect_ai")
    notes = export(made, "inspect-ai", tmp_path / "task")
    assert notes[0].startswith("12 questions")
    status, count, scores = answer_of(INSPECT, "task", "logs", cwd=tmp_path)
    assert (status, count) == ("success", 12)
    assert (scores["original"], scores["grey"], scores["accuracy"]) == (1, 0, 0.5)


@pytest.mark.slow  # its imports alone take seconds
def test_lmms_eval_loads_a_task_for_each_condition(made: Path, tmp_path: Path) -> None:
    pytest.importorskip("lmms_eval")
    export(made, "lmms-eval", tmp_path / "tasks")
    told = answer_of(LMMS, cwd=tmp_path / "tasks")
    assert set(told) == {"holdfast_set_original", "holdfast_set_grey"}
    for judged, size, text, label in told.values():
        assert judged == [1, 1, 0] and size == [64, 64] and f". {label.replace('_', ' ')}\n" in text
    first, second = (text for _, _, text, _ in told.values())
    assert first == second  # the same options in the same order under every condition


def test_what_cannot_be_asked_is_refused(made: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="lmms-eval shows images"):
        export(made, "lmms-eval", tmp_path / "out", images=False)
    holdfast.synth("diorama:test?n=1&size=64", scenarios="original", out=tmp_path / "single", workers=1)
    with pytest.raises(UserError, match="one class only"):
        export(tmp_path / "single", "inspect-ai", tmp_path / "out")
    assert not (tmp_path / "out").exists()
