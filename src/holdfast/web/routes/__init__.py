"""One file a part of the site; each has a ``router``."""

from __future__ import annotations

from fastapi import APIRouter

from holdfast.web.routes import admin, annotate, login, media, operations, results, review

ROUTERS: tuple[APIRouter, ...] = (
    admin.router,
    annotate.router,
    login.router,
    media.router,
    operations.router,
    results.router,
    review.router,
)
