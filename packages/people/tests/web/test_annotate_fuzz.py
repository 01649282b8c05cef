"""Schemathesis on the operations behind the annotate page, with masks that exist: what is refused changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import schemathesis
from annotate_world import open_set
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from holdfast_people import masks
from web_server import serving

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


def test_anything_may_be_sent(tmp_path: Path) -> None:
    with serving(tmp_path / "state") as server:
        open_set(server.state, tmp_path)
        headers = {"Authorization": f"Bearer {server.session('admin')}"}
        schema = schemathesis.openapi.from_dict(server.stranger().get("/api/openapi.json").json())
        schema.config.update(base_url=server.url)

        @schema.hook
        def map_path_parameters(context: Any, path_parameters: dict[str, Any]) -> dict[str, Any]:
            return dict.fromkeys(path_parameters or {}, 1)

        def ask(case: Any) -> None:
            seen.add(case.call_and_validate(headers=headers, checks=CHECKS).status_code)

        seen: set[int] = set()
        operations = [found.ok() for found in schema.get_all_operations() if "/api/annotate" in found.ok().path]
        assert len(operations) >= 8
        bounded = settings(
            max_examples=15, deadline=None, derandomize=True, phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        for operation in operations:
            for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)[: 2 if operation.body else 1]:
                bounded(given(case=operation.as_strategy(generation_mode=mode))(ask))()
        assert seen >= {200, 204, 400, 404, 422}
        with server.state.database.reading() as connection:
            drawing = masks.get_drawing(connection, 1)
            newest = masks.get_version(connection, 1, drawing.version).mask() if drawing.version else None
    path = tmp_path / "masks" / "ball" / "0.png"
    assert path.exists() == (newest is not None)
    if newest is not None:
        assert np.array_equal(cv2.imread(str(path), cv2.IMREAD_UNCHANGED) == 255, newest)
