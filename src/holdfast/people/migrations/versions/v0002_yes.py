"""How many of an image's votes say yes, so that a campaign can stop where the majority cannot turn any more."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("items", sa.Column("yes", sa.Integer(), nullable=False, server_default=sa.text("0")))
