from pathlib import Path

import numpy as np

import holdfast
from holdfast import testing
from holdfast_coins.task import COUNT, Counter
from holdfast_coins.verb import COINS


def test_contracts(tmp_path: Path) -> None:
    testing.check_verb(COINS)
    testing.check_scenario("specks")
    models, data = ["counter:any", "counter:large"], f"manifest:{holdfast.coins(images=9, out=tmp_path / 'coins')}"
    results = holdfast.evaluate(data, models=models, scenarios="original,specks@3", out=tmp_path / "run")
    testing.check_task(COUNT, model=Counter("any"), images=[np.zeros((32, 32, 3), np.uint8)], labels=["0"])
    testing.check_measure("count-error", results.rows().to_pandas())
    testing.check_section("count-errors", results.path)
    errors = results.measure("count-error").set_index(["model", "condition"])["error"]
    assert errors["any", "specks@severity_3"] > 3 and errors["large", "specks@severity_3"] == 0
