"""The routers, one file per part of the site."""

from __future__ import annotations

from fastapi import APIRouter

from holdfast.web.routes import admin, annotate, login, media, operations, review

ROUTERS: tuple[APIRouter, ...] = (
    admin.router,
    annotate.router,
    login.router,
    media.router,
    operations.router,
    review.router,
)
