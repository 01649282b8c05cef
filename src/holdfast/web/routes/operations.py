"""A plain page that lists the API; FastAPI's own page loads scripts from other sites."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from holdfast.web.services.dependencies import Visitor
from holdfast.web.services.pages import page

router = APIRouter()
_METHODS = ("get", "post", "put", "patch", "delete")


@router.get("/api")
def operations_page(request: Request, person: Visitor) -> Response:
    """Show every operation with its parameters."""
    schema: dict[str, Any] = request.app.openapi()
    rooms: dict[str, list[dict[str, Any]]] = {}
    for path, methods in schema["paths"].items():
        for method in _METHODS:
            if method in methods:
                operation = methods[method]
                room = (operation.get("tags") or ["server"])[0]
                rooms.setdefault(room, []).append(
                    {
                        "method": method.upper(),
                        "path": path,
                        "words": operation.get("description", "").replace("``", ""),
                        "takes": _takes(operation, schema),
                    }
                )
    return page(request, "operations.html", rooms=dict(sorted(rooms.items())))


def _takes(operation: dict[str, Any], schema: dict[str, Any]) -> list[str]:
    """Return the names of the query's parameters and the body's fields."""
    names = [item["name"] for item in operation.get("parameters", []) if item["in"] == "query"]
    for content in operation.get("requestBody", {}).get("content", {}).values():
        name = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
        names += list(schema.get("components", {}).get("schemas", {}).get(name, {}).get("properties", {}))
    return names
