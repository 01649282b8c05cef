"""The tree of things that go wrong, by who has to act on them."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NoReturn

from holdfast.core.distribution import pip_install
from holdfast.core.secrets import redacted

_BROUGHT_BY = {
    "attack": ("eagerpy", "foolbox"),
    "dicom": ("pydicom",),
    "evidence": ("cryptography", "holdfast_evidence"),
    "exchange": ("holdfast_exchange",),
    "explain": ("captum", "torchmetrics"),
    "generate": ("diffusers",),
    "hf": ("transformers",),
    "maite": ("maite",),
    "nrtk": ("nrtk", "skimage"),
    "people": ("holdfast_people",),
    "ray": ("ray",),
    "runtimes": ("ai_edge_litert", "openvino"),
    "s3": ("fsspec", "s3fs", "upath"),
    "studies": ("holdfast_studies",),
    "track": ("mlflow", "wandb"),
    "train": ("accelerate", "segmentation_models_pytorch", "tensorboard"),
    "walk": ("open_clip", "sklearn"),
}
EXTRAS = {package: extra for extra, packages in _BROUGHT_BY.items() for package in packages}
"""Import name → extra. Packages that Holdfast itself depends on are not listed."""


def missing_extra(error: BaseException) -> str:
    """Return the sentence that names the extra to install, or "" if no package of an extra is missing."""
    module = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if module not in EXTRAS:
        return ""
    return (
        f"the package {module} is not installed: {pip_install(EXTRAS[module])} installs it; "
        "the extra all installs everything"
    )


class HoldfastError(Exception):
    """Raise one of its subclasses; catch this one for anything that Holdfast raises on purpose.

    Examples:
        >>> issubclass(holdfast.UserError, holdfast.HoldfastError)
        True
    """


class UserError(HoldfastError):
    """Report a mistake in what was asked for: one sentence, exit code 2, no traceback.

    Examples:
        >>> try:
        ...     holdfast.open_run("nowhere")
        ... except holdfast.UserError as error:
        ...     print(error)
        nowhere does not exist; holdfast eval makes a run
    """


_TYPED: ContextVar[bool] = ContextVar("typed", default=False)  # whether a command line is being served
_OTHER_NAMES = {"with": "annotator", "to": "format"}  # options whose keyword is another word


@contextmanager
def typed_command() -> Iterator[None]:
    """Let errors name options such as ``--labels``: what runs inside was typed as a command."""
    token = _TYPED.set(True)
    try:
        yield
    finally:
        _TYPED.reset(token)


@contextmanager
def errors_in_keywords() -> Iterator[None]:
    """Let errors name keyword arguments if they name options, unless a command was typed."""
    try:
        yield
    except UserError as error:
        if not _TYPED.get():
            error.args = (re.sub(r"(?<![\w-])--([a-z][a-z-]*)(?![\w-]*=)(?: (?=\d))?", _keyword, str(error)),)
        raise


def _keyword(option: re.Match[str]) -> str:
    name = _OTHER_NAMES.get(option[1], option[1].replace("-", "_"))
    return f"{name.removeprefix('no_')}=False" if name.startswith("no_") else f"{name}="


class SampleError(HoldfastError):
    """Report an image, mask or prediction that cannot be used: it becomes a row with a status, and the run continues.

    Examples:
        >>> raise holdfast.SampleError("the mask is empty")
        Traceback (most recent call last):
        holdfast.core.errors.SampleError: the mask is empty
    """


class RejectedError(SampleError):
    """An image that a stated filter leaves out, with the reason: an outcome, in a row with status ``rejected``."""


class MachineError(HoldfastError):
    """The machine cannot continue (disk, memory, permission, a lost store): the command ends, no row is made."""


class PromiseError(HoldfastError):
    """A scenario touched what it had promised to leave alone: a bug in that scenario, never in the data."""


class DamageWarning(UserWarning):
    """A damaged file was set aside and its contents are made again."""


class PluginWarning(UserWarning):
    """A package that extends Holdfast cannot be loaded; everything else works."""


_GO_ON = "what was finished is kept: run the same command again"
DISK_FULL = f"the disk is full; free some space; {_GO_ON}"
OUT_OF_MEMORY = f"memory ran out; use a smaller --batch-size or fewer --workers; {_GO_ON}"
_NUMBERS = {
    errno.ENOSPC: DISK_FULL,
    errno.EDQUOT: f"the disk quota is used up; free some space; {_GO_ON}",
    errno.EFBIG: f"a file would be larger than this disk or `ulimit -f` allows; {_GO_ON}",
    errno.ENOMEM: OUT_OF_MEMORY,
} | dict.fromkeys(
    (
        errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENODEV, errno.ENXIO,
        errno.ESTALE, errno.ENOTCONN, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETDOWN, errno.ENETUNREACH,
        errno.ECONNREFUSED,
    ),
    "",
)  # fmt: skip
"""Error numbers for which the machine is to blame, with a sentence if the system's own words are not enough."""

_PHRASES = {os.strerror(number).lower(): number for number in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE)}
_NO_MEMORY = re.compile(
    r"out of memory|(can't|cannot) allocate memory|not enough memory|failed to allocate|alloc_failed", re.IGNORECASE
)
_WRITER = re.compile(r"inline_container.*(unexpected pos|failed writing|write failed)", re.DOTALL)


def out_of_memory(error: BaseException) -> bool:
    """Return whether an error says that memory ran out, on whatever device."""
    return isinstance(error, MemoryError) or _NO_MEMORY.search(text_of(error)) is not None


def machine_trouble(error: BaseException) -> MachineError | None:
    """Return a MachineError if the machine is to blame for an error or for what caused it, else None.

    Libraries wrap the system's errors in their own, so causes and texts are looked at, too.
    """
    for cause in _causes(error):
        if isinstance(cause, MachineError):
            return cause
        if isinstance(cause, (UserError, SampleError)):  # someone has decided already
            return None
        sentence = _sentence(cause)
        if sentence:
            return MachineError(sentence)
    return None


def cannot_write(what: object, error: OSError) -> HoldfastError:
    """Return what ends a command that cannot write a file or folder; on a full disk the machine is to blame."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return MachineError(_NUMBERS[error.errno])
    return UserError(f"cannot write {what}: {error.strerror or error}")


def raise_machine_trouble(error: BaseException) -> None:
    """Raise a MachineError if the machine is to blame for an error, else do nothing."""
    trouble = machine_trouble(error)
    if trouble is not None:
        raise trouble from error


def half_may_work(error: BaseException) -> bool:
    """Return whether a part of a batch may succeed if the whole batch failed with this error."""
    if isinstance(error, (UserError, MachineError)):
        return False
    return out_of_memory(error) or machine_trouble(error) is None


def stop_or_sentence(error: Exception) -> str:
    """Return the sentence for a row with status ``error``; raise what has to end the command instead.

    A UserError and trouble of the machine end it; everything else is about one image or one answer.
    """
    if isinstance(error, UserError):
        raise error
    raise_machine_trouble(error)
    said = text_of(error)
    return (said if isinstance(error, HoldfastError) else f"{type(error).__name__}: {said}")[:500]


def text_of(error: BaseException) -> str:
    """Return what an error says, without secrets and as text that a file can hold."""
    try:
        said = str(error)
    except Exception as trouble:  # a model's own error may be written badly
        said = f"its text cannot be read, since that raises {type(trouble).__name__}"
    return redacted(said).encode(errors="backslashreplace").decode()


def check_unicode(text: str, what: str) -> str:
    """Return the text; a SampleError if it has half a character (a lone surrogate), which no file can hold."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = f"\\u{ord(text[error.start]):04x}"
        raise SampleError(f"{what} has half a character ({half}), which is not Unicode text") from None
    return text


end_process = os._exit  # what Holdfast itself ends a process with, also while ``no_exit`` keeps others from it


_guards: list[int] = []  # the process of each ``no_exit`` that is under way


class _HardExit(SystemExit):
    """Raised in place of ``os._exit``."""


def _stop_command(status: int) -> NoReturn:
    if os.getpid() not in _guards:  # a process that was forked meanwhile, which may end as it likes
        end_process(status)
    raise _HardExit(status)


@contextmanager
def no_exit() -> Iterator[None]:
    """Turn a SystemExit inside the block into a HoldfastError: a model must not end a command as if all were done.

    The same goes for everything else that is no ``Exception``, such as GeneratorExit, except for Ctrl-C, and for
    ``os._exit``, which would end the process with any code, 0 included, and say nothing.
    """
    _guards.append(os.getpid())
    os._exit = _stop_command
    try:
        yield
    except _HardExit as stop:
        raise HoldfastError(f"a model or another plug-in called os._exit({stop.code}); {_GO_ON} without it") from stop
    except (Exception, KeyboardInterrupt):
        raise
    except SystemExit as stop:
        if isinstance(stop.__context__, BrokenPipeError):  # rich's way of saying that no one reads on
            raise stop.__context__ from None
        said = f": {stop.code}" if isinstance(stop.code, str) else ""
        raise HoldfastError(f"a model or another plug-in called sys.exit(){said}; {_GO_ON} without it") from stop
    except BaseException as stop:
        said = f"{type(stop).__name__}: {text_of(stop)}".removesuffix(": ")
        raise HoldfastError(f"a model or another plug-in raised {said}; {_GO_ON} without it") from stop
    finally:
        _guards.pop()
        if not _guards:  # threads may be in several of these blocks
            os._exit = end_process


def first_line(error: BaseException) -> str:
    """Return the beginning of a library's message, short enough for one sentence; cut where a sentence ends."""
    text = (text_of(error).strip().splitlines() or [type(error).__name__])[0]
    if len(text) <= 200:
        return text
    sentences, dot, _ = text[:200].rpartition(". ")
    return sentences if dot else f"{text[:200].rpartition(' ')[0] or text[:199]} …"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _sentence(error: BaseException) -> str:
    if missing := missing_extra(error):
        return missing
    if isinstance(error, OSError) and error.errno in _NUMBERS:
        where = f"{error.filename}: " if error.filename else ""
        return _NUMBERS[error.errno] or f"{where}{os.strerror(error.errno).lower()}; {_GO_ON}"
    if out_of_memory(error):
        return f"{OUT_OF_MEMORY} ({first_line(error)})"
    text = text_of(error)
    if _WRITER.search(text):  # torch's writer says no more if a disk is full
        return f"a file could not be written, perhaps because the disk is full ({first_line(error)}); {_GO_ON}"
    for phrase, number in _PHRASES.items():
        if phrase in text.lower():
            return _NUMBERS[number] or f"{first_line(error)}; {_GO_ON}"
    if "cuda error" in text.lower():  # after one, every call of this process fails
        return f"the GPU failed ({first_line(error)}); {_GO_ON}"
    return ""
