"""How this process keeps memory."""

from __future__ import annotations

import ctypes
import platform


def keep_memory() -> None:
    """Make glibc keep freed image buffers instead of returning them to the kernel.

    For processes of our own: the command line and workers. A program that imports Holdfast keeps its settings.
    """
    # By default every array above 128 KB is mapped and unmapped, so each new image pays a page fault for every 4 KB: on
    # 500 × 375 images that is a third of the time of rendering them. Elsewhere than on glibc this does nothing.
    if platform.libc_ver()[0] != "glibc":
        return
    mallopt = ctypes.CDLL(None).mallopt
    for option, value in ((_TRIM_THRESHOLD, 512 << 20), (_TOP_PAD, 64 << 20), (_MMAP_THRESHOLD, 32 << 20)):
        mallopt(option, value)


_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3  # as in malloc.h
