"""All tables, as the code has them now; the first change after a release puts a copy of that release's tables here."""

from __future__ import annotations

from alembic import op

from holdfast_people.tables import metadata

revision = "0002"
down_revision = None


def upgrade() -> None:
    metadata.create_all(op.get_bind(), checkfirst=False)
