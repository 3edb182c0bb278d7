"""Recognises errors of libraries that have run out of memory, and measures what was needed and what was free."""

import contextlib
import os
import re
import sys
from pathlib import Path

import msgspec

GIB = 1024**3

_SAYINGS = (
    "out of memory",  # CUDA, HIP, XPU, cuBLAS, NCCL
    "can't allocate memory",  # torch's allocator for main memory
    "CUBLAS_STATUS_ALLOC_FAILED",
    "No available memory for the cache blocks",  # vLLM, when it starts
    "less than desired GPU memory utilization",  # the same
    "which is larger than the available KV cache memory",  # the same
)
_NEEDED = re.compile(r"[Tt]r(?:ied|y) to allocate ([\d.]+) ?(GiB|MiB|KiB|bytes)")
_UNITS = {"GiB": GIB, "MiB": 1024**2, "KiB": 1024, "bytes": 1}


class MemorySizes(msgspec.Struct, frozen=True, kw_only=True):
    """Memory in bytes when an allocation failed; None where it is unknown."""

    device: str
    """`GPU 0`, or `main memory`."""
    needed: int | None = None
    """Size of the allocation that failed."""
    free: int | None = None
    total: int | None = None

    def __str__(self) -> str:
        needed = "" if self.needed is None else f"{format_size(self.needed)} more were needed, "
        free = "?" if self.free is None else format_size(self.free)
        total = "" if self.total is None else f" of {format_size(self.total)}"
        return f"{needed}{free}{total} of {self.device} were free"


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error, or one of its causes, says that memory has run out."""
    seen: BaseException | None = error
    while seen is not None:
        # torch.OutOfMemoryError is not imported for this: a process without torch cannot have raised it.
        if isinstance(seen, MemoryError) or type(seen).__name__ == "OutOfMemoryError" or says_out_of_memory(str(seen)):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def says_out_of_memory(text: str) -> bool:
    """Return whether a library's message says that memory has run out."""
    return any(saying in text for saying in _SAYINGS)


def measure_memory(error: BaseException | None = None) -> MemorySizes:
    """Return the sizes of the first GPU if torch uses one, else of main memory. error: names the size needed."""
    found = _NEEDED.search(str(error))
    needed = None if found is None else int(float(found[1]) * _UNITS[found[2]])
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        with contextlib.suppress(RuntimeError):  # a GPU after an error may answer nothing
            free, total = torch.cuda.mem_get_info()
            return MemorySizes(device=f"GPU {torch.cuda.current_device()}", needed=needed, free=free, total=total)
        return MemorySizes(device="the GPU", needed=needed)
    free, total = _main_memory()
    return MemorySizes(device="main memory", needed=needed, free=free, total=total)


def _main_memory() -> tuple[int | None, int]:
    """Return free and total main memory, within the limit of this process's control group."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    free = None
    with contextlib.suppress(OSError):
        found = re.search(r"MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text())
        free = None if found is None else int(found[1]) * 1024
    with contextlib.suppress(OSError, ValueError):  # "max": no limit
        group = Path("/sys/fs/cgroup")
        limit = int((group / "memory.max").read_text())
        used = int((group / "memory.current").read_text())
        free, total = min(limit - used, free if free is not None else limit), min(limit, total)
    return free, total


def vllm_peak() -> int | None:
    """Return the peak main memory in bytes of vLLM's processes, added up; None where this process has started none.

    vLLM runs an engine in processes of their own, named `VLLM::EngineCore`, `VLLM::Worker_TP0` and so on.
    """
    if "vllm" not in sys.modules:
        return None
    import psutil  # a requirement of vLLM's

    peak = 0
    for process in psutil.Process().children(recursive=True):
        # It may end at any time; only Linux has the file.
        with contextlib.suppress(psutil.Error, OSError):
            if process.name().startswith("VLLM"):
                found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
                peak += 0 if found is None else int(found[1]) * 1024
    return peak or None


def format_size(size: int) -> str:
    """Return a number of bytes for people."""
    return f"{size / GIB:.3g} GiB" if size >= GIB / 10 else f"{size / 1024**2:.3g} MiB"
