"""BPF programs: objects that the build compiled once for every kernel (CO-RE), loaded and attached through libbpf.

No compiler is needed where they run, and no second process: what libbpf itself keeps is some hundred KB.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import struct
from functools import cache
from pathlib import Path
from typing import Any

from permille.mesh.errors import FailedPrecondition

BTF = Path("/sys/kernel/btf/vmlinux")
# A ring buffer record carries its length and two flags in front (include/uapi/linux/bpf.h, BPF_RINGBUF_*).
BUSY = 1 << 31
DISCARD = 1 << 30
POSITION = struct.Struct("<Q")


class BpfObject:
    """The programs and maps of one object file, in the kernel for as long as this is open."""

    def __init__(self, path: Path) -> None:
        """Loads it. Raises FailedPrecondition (BPF_UNAVAILABLE): why this machine does not let BPF programs run."""
        if not path.is_file():
            raise unavailable(f"{path} is not built", "make setup")
        self._lib = libbpf()
        self._object = self._lib.bpf_object__open_file(os.fsencode(path), None)
        if not self._object or self._lib.bpf_object__load(self._object) != 0:
            error = ctypes.get_errno()
            self.close()
            raise why_not(error)

    def attach(self, program: str) -> Attached:
        """Has a program run wherever its section says. Raises FailedPrecondition (BPF_UNAVAILABLE)."""
        found = self._lib.bpf_object__find_program_by_name(self._object, program.encode())
        link = self._lib.bpf_program__attach(found)
        if not link:
            raise why_not(ctypes.get_errno())
        return Attached(self._lib, link)

    def map(self, name: str) -> BpfMap:
        descriptor = self._lib.bpf_object__find_map_fd_by_name(self._object, name.encode())
        if descriptor < 0:
            raise KeyError(name)
        return BpfMap(self._lib, descriptor)

    def close(self) -> None:
        if self._object:
            self._lib.bpf_object__close(self._object)
            self._object = None


class Attached:
    """A program at its place, until it is detached."""

    def __init__(self, lib: Any, link: Any) -> None:
        self._lib, self._link = lib, link

    def detach(self) -> None:
        self._lib.bpf_link__destroy(self._link)


class BpfMap:
    """A map of the kernel's: keys and values are bytes, as the program has them. All raise OSError."""

    def __init__(self, lib: Any, descriptor: int) -> None:
        self._lib, self.descriptor = lib, descriptor

    def put(self, key: bytes, value: bytes) -> None:
        self._check(self._lib.bpf_map_update_elem(self.descriptor, key, value, 0))

    def put_on_each_core(self, key: bytes, value: bytes) -> None:
        """Into a map that has a value of eight bytes for each core."""
        self.put(key, value * int(self._lib.libbpf_num_possible_cpus()))

    def get(self, key: bytes, size: int) -> bytes:
        """The value, of `size` bytes."""
        value = ctypes.create_string_buffer(size)
        self._check(self._lib.bpf_map_lookup_elem(self.descriptor, key, value))
        return value.raw

    def remove(self, key: bytes) -> None:
        self._check(self._lib.bpf_map_delete_elem(self.descriptor, key))

    @staticmethod
    def _check(result: int) -> None:
        if result != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


class Ring:
    """A ring buffer (BPF_MAP_TYPE_RINGBUF) of records of one size, read in bulk instead of one callback per record."""

    def __init__(self, ring: BpfMap, ring_bytes: int, record_bytes: int) -> None:
        """`record_bytes`: a multiple of 8."""
        self._size = ring_bytes
        self._slot = struct.Struct(f"<II{record_bytes}s")
        writable = mmap.PROT_READ | mmap.PROT_WRITE
        self._consumer = mmap.mmap(ring.descriptor, mmap.PAGESIZE, mmap.MAP_SHARED, writable)
        # The data pages are mapped twice in a row, so that a record never wraps.
        length = mmap.PAGESIZE + 2 * ring_bytes
        self._producer = mmap.mmap(ring.descriptor, length, mmap.MAP_SHARED, mmap.PROT_READ, offset=mmap.PAGESIZE)

    def drain(self) -> list[bytes]:
        """What was written since the last time."""
        (begin,) = POSITION.unpack_from(self._consumer, 0)
        (end,) = POSITION.unpack_from(self._producer, 0)
        if begin == end:
            return []
        data = mmap.PAGESIZE + begin % self._size
        slots = list(self._slot.iter_unpack(self._producer[data : data + end - begin]))
        whole = next((index for index, slot in enumerate(slots) if slot[0] & BUSY), len(slots))
        POSITION.pack_into(self._consumer, 0, begin + whole * self._slot.size)
        return [record for length, _, record in slots[:whole] if not length & DISCARD]

    def close(self) -> None:
        self._consumer.close()
        self._producer.close()


@cache
def libbpf() -> Any:
    """Raises FailedPrecondition (BPF_UNAVAILABLE)."""
    try:
        lib = ctypes.CDLL("libbpf.so.1", use_errno=True)
    except OSError as error:
        raise unavailable(f"libbpf is not installed: {error}", "sudo apt-get install libbpf1") from None
    pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    for name, result, arguments in (
        ("bpf_object__open_file", pointer, (text, pointer)),
        ("bpf_object__load", number, (pointer,)),
        ("bpf_object__close", None, (pointer,)),
        ("bpf_object__find_program_by_name", pointer, (pointer, text)),
        ("bpf_object__find_map_fd_by_name", number, (pointer, text)),
        ("bpf_program__attach", pointer, (pointer,)),
        ("bpf_link__destroy", number, (pointer,)),
        ("bpf_map_update_elem", number, (number, text, text, ctypes.c_uint64)),
        ("bpf_map_lookup_elem", number, (number, text, pointer)),
        ("bpf_map_delete_elem", number, (number, text)),
        ("libbpf_set_print", pointer, (pointer,)),
    ):
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    # What it prints is for whoever writes programs; what a user can do is said in the error.
    lib.libbpf_set_print(None)
    return lib


def why_not(error: int) -> FailedPrecondition:
    # To root EACCES says that the verifier has found something.
    if error == errno.EPERM or (error == errno.EACCES and os.geteuid() != 0):
        return unavailable(
            "BPF programs need root (or CAP_BPF and CAP_PERFMON)",
            "sudo permille up; for root too `sysctl kernel.bpf` and the kernel's lockdown mode matter",
        )
    if not BTF.exists():
        return unavailable(
            f"the kernel does not describe itself: {BTF} is missing",
            "use a kernel with CONFIG_DEBUG_INFO_BTF, as Debian's are",
        )
    return unavailable(
        f"the kernel refuses the BPF program: {os.strerror(error)}", "use Linux 5.10 or newer, as Debian has"
    )


def unavailable(why: str, fix: str) -> FailedPrecondition:
    return FailedPrecondition(why, reason="BPF_UNAVAILABLE", help=fix)
