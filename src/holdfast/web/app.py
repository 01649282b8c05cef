"""The web application: routers, errors, the guard in front, and the chore that expires tasks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import FastAPI
from fastapi.routing import APIRoute
from fastapi.telemetry import TelemetryConfig
from starlette.staticfiles import StaticFiles

from holdfast.people.assignment import expire_tasks
from holdfast.people.database import DatabaseUnavailable
from holdfast.web import errors
from holdfast.web.dependencies import TROUBLES
from holdfast.web.mask_editing import MaskEditing
from holdfast.web.pages import STATIC
from holdfast.web.routes import ROUTERS
from holdfast.web.security import Guard
from holdfast.web.server_state import ServerState

log = logging.getLogger("holdfast.web")
CHORE_S = 5.0
# Spans would contain paths, and some paths contain tokens, so OpenTelemetry must not collect them.
_SILENT: TelemetryConfig = {
    "tracing": False, "metrics": False, "logs": False, "operation_spans": False, "auto_configure": False,
}  # fmt: skip


def create_app(server: ServerState) -> FastAPI:
    """Return the web application of a server; ``holdfast.web.serve.run`` serves it."""
    editing = MaskEditing(server)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await asyncio.to_thread(editing.open)
        chore = asyncio.create_task(_take_back(server))
        try:
            yield
        finally:
            chore.cancel()
            await asyncio.to_thread(editing.close)

    # FastAPI's own /docs loads scripts from other sites; /api is a plain page of ours.
    app = FastAPI(
        title="Holdfast", version=version("holdfast"), openapi_url="/api/openapi.json", docs_url=None, redoc_url=None,
        redirect_slashes=False, responses=TROUBLES, lifespan=lifespan, telemetry=_SILENT,
    )  # fmt: skip
    app.state.server = server
    app.state.editing = editing
    errors.register(app)
    for router in ROUTERS:
        for route in router.routes:
            if isinstance(route, APIRoute) and not errors.wants_json(route.path):
                route.include_in_schema = False  # a page
        app.include_router(router)
    app.mount("/static", StaticFiles(directory=STATIC))
    app.add_middleware(Guard, server=server)
    return app


async def _take_back(server: ServerState) -> None:
    """Expire tasks that ran out of time every few seconds, so that others get their pictures."""

    def expire() -> None:
        with server.database.writing() as connection:
            expire_tasks(connection, now=server.now())

    while True:
        try:
            await asyncio.to_thread(expire)
        except DatabaseUnavailable as error:
            log.warning("tasks could not be taken back yet: %s", error.detail or error)
        except Exception as error:  # the chore must survive any error of one round
            log.error("tasks could not be taken back", exc_info=error)
        await asyncio.sleep(CHORE_S)
