"""Runs → a page that opens from disk, its figures and tables."""

from holdfast.reports.assembly import build, html_summary

__all__ = ["build", "html_summary"]
