"""perf's clock, in which the kernel stamps its records, in terms of the TSC."""

from __future__ import annotations

import mmap
import os
import time
from fcntl import ioctl

from permille.controller.domain import perf_layout as perf
from permille.controller.domain.not_on_this_machine import NotOnThisMachine
from permille.controller.domain.perf_events import BACKEND, open_event, refused
from permille.controller.domain.perf_layout import Attr, AttrFlags, Page

_ALL_ONES = (1 << 64) - 1


class PerfClock:
    """Raises NotOnThisMachine where the kernel's clock is not the TSC, and what `refused` tells."""

    def __init__(self) -> None:
        attr = Attr(
            type=perf.TYPE_SOFTWARE,
            config=perf.COUNT_SW_DUMMY,
            flags=AttrFlags.DISABLED | AttrFlags.EXCLUDE_KERNEL | AttrFlags.EXCLUDE_HV,
        )
        try:
            self._fd = open_event(attr, 0, -1)
        except OSError as error:
            raise refused(error) from None
        try:
            self._page = mmap.mmap(self._fd, mmap.PAGESIZE, mmap.MAP_SHARED, mmap.PROT_READ)
        except OSError as error:
            os.close(self._fd)
            raise refused(error) from None
        self._line = self._read()
        if not self._line.capabilities & perf.CAP_USER_TIME_ZERO:
            self.close()
            raise NotOnThisMachine(
                BACKEND,
                "its kernel does not keep time by the TSC, as in many virtual machines",
                "boot with clocksource=tsc on hardware whose TSC is constant, or use the kernel module",
            )

    def tsc(self, ns: int) -> int:
        """At a time of perf's; perf_event_open(2), `cap_user_time_zero`, solved for the TSC."""
        return ticks(ns, self._line)

    def now(self) -> tuple[int, int]:
        """TSC and unix ns. The kernel reads its clock when it updates the page, which a reset makes it do."""
        before = time.time_ns()
        ioctl(self._fd, perf.IOC_RESET, 0)
        after, page = time.time_ns(), self._read()
        return ticks((page.time_zero - page.time_offset) & _ALL_ONES, page), (before + after) // 2

    def close(self) -> None:
        self._page.close()
        os.close(self._fd)

    def _read(self) -> Page:
        return Page.from_buffer_copy(self._page)


def ticks(ns: int, page: Page) -> int:
    return int((((ns - page.time_zero) & _ALL_ONES) << page.time_shift) // page.time_mult)
