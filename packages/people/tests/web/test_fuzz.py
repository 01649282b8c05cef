"""Schemathesis sends the whole API what its description allows and what it does not, over HTTP to a real server."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from web_server import Serving, open_campaign, serving

CHECKS = [
    not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance,
    negative_data_rejection,
]  # fmt: skip
BOUNDED = settings(
    deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)  # fmt: skip


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """With a campaign, a person's task in it, and datasets to make more of."""
    folder = tmp_path_factory.mktemp("fuzz")
    url = ""
    if request.param == "postgresql":
        cluster, name = request.getfixturevalue("postgres_server"), f"fuzz_{uuid.uuid4().hex}"
        url = cluster.replace("/postgres?", f"/{name}?")
        with psycopg.connect(cluster, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
    with serving(folder / "state", database=url) as found:
        open_campaign(found.state, folder)
        yield found


@pytest.fixture(scope="module")
def session(server: Serving) -> str:
    """Of an administrator whose invitation the fuzzer will not withdraw."""
    return [server.session("admin") for _ in range(20)][-1]


@pytest.fixture(scope="module")
def api(server: Serving, session: str) -> Any:
    headers = {"authorization": f"Bearer {session}"}
    description = server.stranger().get("/api/openapi.json").json()
    task = server.stranger(**headers).post("/api/review/campaigns/1/task").json()["task"]
    place = task["pictures"][0]["token"]
    for methods in description["paths"].values():
        for operation in methods.values():
            operation.pop("security", None)  # who asks is our choice, not the fuzzer's
    schema = schemathesis.openapi.from_dict(description)
    schema.config.update(base_url=server.url)

    # Half of the right numbers and tokens become those of things that exist, to get past "no such thing".
    def known(value: Any, thing: Any) -> Any:
        is_number = isinstance(value, int) and not isinstance(value, bool) and 1 <= value < 2**63
        is_right = is_number if isinstance(thing, int) else bool(re.fullmatch(r"[A-Za-z0-9_-]{1,100}", str(value)))
        return thing if is_right and len(str(value)) % 2 else value

    @schema.hook
    def map_path_parameters(context: Any, path_parameters: dict[str, Any]) -> dict[str, Any]:
        token = task["token"] if context.operation.path.endswith("finish") else place
        found = path_parameters or {}
        return {name: known(value, token if name == "token" else 1) for name, value in found.items()}

    @schema.hook
    def map_body(context: Any, body: Any) -> Any:
        things = {"source": 1, "controls": 2, "place": place}
        if not isinstance(body, dict):
            return body
        return body | {name: known(body[name], thing) for name, thing in things.items() if name in body}

    return schema


def fuzz(api: Any, ask: Callable[[Any], None], examples: int) -> int:
    """Ask with what every operation's description allows, and with what it does not; how many operations there are."""
    operations = [found.ok() for found in api.get_all_operations()]
    for operation in operations:
        allowed = operation.as_strategy(generation_mode=GenerationMode.POSITIVE)
        refused = operation.as_strategy(generation_mode=GenerationMode.NEGATIVE)
        can_be_wrong = operation.body or any(parameters for parameters in (operation.path_parameters, operation.query))
        settings(BOUNDED, max_examples=examples)(given(case=(allowed | refused) if can_be_wrong else allowed)(ask))()
    return len(operations)


def test_an_administrator_may_send_anything(api: Any, session: str) -> None:
    def ask(case: Any) -> None:
        answer = case.call_and_validate(headers={"Authorization": f"Bearer {session}"}, checks=CHECKS)
        assert answer.status_code not in (401, 403)
        seen.add(answer.status_code)

    seen: set[int] = set()
    assert fuzz(api, ask, 10) > 20
    assert seen >= {200, 201, 204, 400, 404, 422}


def test_a_stranger_may_send_anything_and_learns_nothing(api: Any) -> None:
    def ask(case: Any) -> None:
        answer = case.call()
        case.validate_response(answer, checks=[not_a_server_error, status_code_conformance, content_type_conformance])
        assert case.path == "/api/health" or answer.status_code in (400, 401, 403, 404, 405, 413, 422)

    assert fuzz(api, ask, 4) > 20
