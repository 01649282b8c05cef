"""The application: routers, errors, the guard in front and the chore behind."""

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
from holdfast.web.house import House
from holdfast.web.pages import STATIC
from holdfast.web.routes import ROUTERS
from holdfast.web.security import Guard
from holdfast.web.workshop import Workshop

log = logging.getLogger("holdfast.web")
CHORE_S = 5.0
# Spans would name paths, and some paths hold tokens; an OpenTelemetry of the environment must not collect them.
_SILENT: TelemetryConfig = {
    "tracing": False, "metrics": False, "logs": False, "operation_spans": False, "auto_configure": False,
}  # fmt: skip


def create_app(house: House) -> FastAPI:
    """The web application over a house; ``holdfast.web.serve.run`` serves it."""
    workshop = Workshop(house)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await asyncio.to_thread(workshop.open)
        chore = asyncio.create_task(_take_back(house))
        try:
            yield
        finally:
            chore.cancel()
            await asyncio.to_thread(workshop.close)

    # The usual pages at /docs load scripts from elsewhere; /api has a plain one of our own.
    app = FastAPI(
        title="Holdfast", version=version("holdfast"), openapi_url="/api/openapi.json", docs_url=None, redoc_url=None,
        redirect_slashes=False, responses=TROUBLES, lifespan=lifespan, telemetry=_SILENT,
    )  # fmt: skip
    app.state.house = house
    app.state.workshop = workshop
    errors.register(app)
    for router in ROUTERS:
        for route in router.routes:
            if isinstance(route, APIRoute) and not errors.wants_json(route.path):
                route.include_in_schema = False  # a page
        app.include_router(router)
    app.mount("/static", StaticFiles(directory=STATIC))
    app.add_middleware(Guard, house=house)
    return app


async def _take_back(house: House) -> None:
    """Give the pictures of tasks that ran out of time to others, every few seconds."""

    def expire() -> None:
        with house.database.writing() as connection:
            expire_tasks(connection, now=house.now())

    while True:
        try:
            await asyncio.to_thread(expire)
        except DatabaseUnavailable as error:
            log.warning("tasks could not be taken back yet: %s", error.detail or error)
        except Exception as error:  # the chore must outlive whatever one round met
            log.error("tasks could not be taken back", exc_info=error)
        await asyncio.sleep(CHORE_S)
