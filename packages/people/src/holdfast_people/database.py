"""The database: SQLite by default, PostgreSQL by URL; opening it migrates its tables to the newest."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Engine, Table, create_engine, event, inspect, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DatabaseError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from holdfast.core.errors import HoldfastError, UserError, first_line
from holdfast.core.system import user_id
from holdfast_people.tables import metadata

if TYPE_CHECKING:
    from alembic.config import Config


_LOCK = 7_020_421  # any number that no other program takes in the same PostgreSQL database


def upgrade(engine: Engine) -> None:
    """Create or change the tables as far as needed; one process at a time, all or nothing."""
    with engine.connect() as connection:
        if _current(connection) == newest():
            return
    with engine.connect().execution_options(immediate=True) as connection, connection.begin():
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        _upgrade(connection)  # which looks again: another process may have been faster


def newest() -> str:
    """Return the last of our migrations."""
    from alembic.script import ScriptDirectory

    head = ScriptDirectory.from_config(_config()).get_current_head()
    assert head is not None
    return head


def _upgrade(connection: Connection) -> None:
    from alembic import command
    from alembic.script import ScriptDirectory

    config = _config()
    current = _current(connection)
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if current is not None and current not in known:
        raise UserError(
            f"the database is at version {current}, which this Holdfast does not know; update Holdfast to use it"
        )
    taken = sorted(set(inspect(connection).get_table_names()) & set(metadata.tables))
    if current is None and taken:
        raise UserError(
            f"the database has tables of another program ({', '.join(taken)}); give Holdfast one of its own"
        )
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _current(connection: Connection) -> str | None:
    from alembic.runtime.migration import MigrationContext

    return MigrationContext.configure(connection).get_current_revision()


def _config() -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


BUSY_S = 5.0  # seconds that a request waits for another write before it answers that the database is busy
_BUSY = "the database is busy with another write"


class DatabaseUnavailable(HoldfastError):  # noqa: N818 - a state of affairs, not a mistake
    """The database cannot answer now, a retry may help; ``detail`` (the driver's) is for the server's output only."""

    def __init__(self, sentence: str, detail: str = "") -> None:
        super().__init__(sentence)
        self.detail = detail


class Database:
    """An engine with a context manager for reading and one for writing."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        # SQLite's own waiting is polling, and anyone who polls at the right moment wins; this queue is quick. Writers
        # of other processes still meet in SQLite.
        self._writer = Lock() if self.is_sqlite else None

    @property
    def is_sqlite(self) -> bool:
        """Whether only one connection may write at a time."""
        return self.engine.dialect.name == "sqlite"

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Give a connection to read from."""
        with _available(), self.engine.connect() as connection:
            if not self.is_sqlite:  # each statement sees what is committed either way; this saves two trips
                connection.execution_options(isolation_level="AUTOCOMMIT")
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Give a transaction, stored when the block ends well; SQLite takes the write lock at once, before it reads."""
        if self._writer is not None and not self._writer.acquire(timeout=BUSY_S):
            raise DatabaseUnavailable(_BUSY)
        try:
            with _available(), self.engine.connect() as connection:
                connection.execution_options(immediate=True)
                with connection.begin():
                    yield connection
        finally:
            if self._writer is not None:
                self._writer.release()

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()


@contextmanager
def _available() -> Iterator[None]:
    try:
        yield
    except PoolTimeout as error:
        raise DatabaseUnavailable(_BUSY) from error
    except (OperationalError, InterfaceError) as error:
        detail = first_line(error.orig or error)
        sentence = next((said for word, said in _REASONS.items() if word in detail), "the database does not answer")
        raise DatabaseUnavailable(sentence, detail) from error


_REASONS = {
    "locked": _BUSY,
    "busy": _BUSY,
    "full": "the disk is full",
    "No space": "the disk is full",
    "readonly": "the database may not be written to",
}


def open_database(place: str | Path) -> Database:
    """Open a database, a URL of SQLAlchemy or the path of a SQLite file, and migrate it if needed."""
    url = str(place) if "://" in str(place) else f"sqlite:///{Path(place).expanduser().absolute()}"
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):  # a port that is not a number, often a password with @ : or / in it
        raise UserError(
            "this is not a URL of a database; sqlite:///FILE and postgresql://USER@HOST/NAME are, with special "
            "characters of a password as %40 and the like"
        ) from None
    backend = parsed.get_backend_name()
    if backend not in ("sqlite", "postgresql"):
        raise UserError(f"the database must be SQLite or PostgreSQL, not {backend}")
    options: dict[str, Any] = {"pool_pre_ping": backend == "postgresql", "pool_size": 40, "max_overflow": 10}
    options["pool_timeout"] = BUSY_S
    options["hide_parameters"] = True  # messages end up in logs, and parameters hold tokens
    if backend == "postgresql":
        engine = create_engine(parsed.set(drivername="postgresql+psycopg"), **options)
    else:
        if not parsed.database or ":memory:" in parsed.database:
            raise UserError("the people's work is kept in a file; give the path of one")
        _keep_private(Path(parsed.database))
        engine = create_engine(parsed, **options, connect_args={"timeout": BUSY_S})
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    try:
        with _available():
            upgrade(engine)
    except UserError:
        engine.dispose()
        raise
    except (DatabaseUnavailable, DatabaseError) as error:
        engine.dispose()
        reason = first_line(error.orig or error) if isinstance(error, DatabaseError) else error.detail or error
        where = engine.url.render_as_string(hide_password=True)
        raise UserError(f"the database {where} cannot be opened: {reason}") from error
    return Database(engine)


def insert_new(connection: Connection, table: Table, columns: Sequence[str]) -> Any:
    """Return an INSERT that skips rows whose values in these (unique) columns exist already."""
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    return dialect.insert(table).on_conflict_do_nothing(index_elements=columns)


def _keep_private(path: Path) -> None:
    """Create the file so that only its owner can read it; SQLite would follow the umask."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"the folder {str(path.parent)!r} cannot be made: {error.strerror}") from None
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        if path.stat().st_uid == user_id() and path.stat().st_mode & 0o077:
            path.chmod(0o600)
    except OSError as error:
        raise UserError(f"the database {str(path)!r} cannot be opened: {error.strerror}") from None


def _prepare_sqlite(connection: Any, _: Any) -> None:
    # We say BEGIN ourselves. FULL: what was acknowledged is on the disk, not only in the system's memory.
    connection.isolation_level = None
    for pragma in (f"busy_timeout={int(BUSY_S * 1000)}", "journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    immediate = connection.get_execution_options().get("immediate", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")
