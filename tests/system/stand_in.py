"""Stand-ins for NVIDIA's driver: one in Python, and one in C for processes that load a library."""

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ERRORS = {
    1: "CUDA_ERROR_INVALID_VALUE",
    2: "CUDA_ERROR_OUT_OF_MEMORY",
    34: "CUDA_ERROR_STUB_LIBRARY",
    46: "CUDA_ERROR_DEVICE_UNAVAILABLE",
    100: "CUDA_ERROR_NO_DEVICE",
    802: "CUDA_ERROR_SYSTEM_NOT_READY",
    803: "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
    804: "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
    805: "CUDA_ERROR_MPS_CONNECTION_FAILED",
    999: "CUDA_ERROR_UNKNOWN",
}


@dataclass
class Card:
    """A GPU; ``retain`` and ``tell`` are the codes with which its context and the question after its memory end."""

    name: str = "H200"
    capability: tuple[int, int] = (9, 0)
    total: int = 140 << 30
    free: int = 139 << 30
    retain: int = 0
    tell: int = 0


class StandIn:
    """The driver as far as it is asked. ``held`` counts contexts taken and not given back, ``asked`` those taken."""

    def __init__(self, *cards: Card, version: int = 13000, start: int = 0) -> None:
        self.cards, self.version, self.start = cards, version, start
        self.held, self.asked = 0, 0
        self.current: list[int] = []

    def cuDriverGetVersion(self, version: Any) -> int:  # noqa: N802 (here and below: CUDA's names)
        version._obj.value = self.version
        return 0

    def cuInit(self, flags: int) -> int:  # noqa: N802
        return self.start

    def cuGetErrorName(self, code: int, name: Any) -> int:  # noqa: N802
        name._obj.value = ERRORS[code].encode() if code in ERRORS else None
        return 0 if code in ERRORS else 1

    def cuDeviceGetCount(self, count: Any) -> int:  # noqa: N802
        count._obj.value = len(self.cards)
        return 0

    def cuDeviceGet(self, device: Any, index: int) -> int:  # noqa: N802
        device._obj.value = index
        return 0

    def cuDeviceGetName(self, name: Any, size: int, device: Any) -> int:  # noqa: N802
        name.value = self.cards[device.value].name.encode()
        return 0

    def cuDeviceTotalMem_v2(self, total: Any, device: Any) -> int:  # noqa: N802
        total._obj.value = self.cards[device.value].total
        return 0

    def cuDeviceGetAttribute(self, value: Any, attribute: int, device: Any) -> int:  # noqa: N802
        value._obj.value = self.cards[device.value].capability[{75: 0, 76: 1}[attribute]]
        return 0

    def cuDevicePrimaryCtxRetain(self, context: Any, device: Any) -> int:  # noqa: N802
        self.asked += 1
        if self.cards[device.value].retain:
            return self.cards[device.value].retain
        context._obj.value = device.value + 1
        self.held += 1
        return 0

    def cuDevicePrimaryCtxRelease_v2(self, device: Any) -> int:  # noqa: N802
        self.held -= 1
        return 0

    def cuCtxPushCurrent_v2(self, context: Any) -> int:  # noqa: N802
        self.current.append(context.value - 1)
        return 0

    def cuCtxPopCurrent_v2(self, context: Any) -> int:  # noqa: N802
        context._obj.value = self.current.pop() + 1
        return 0

    def cuMemGetInfo_v2(self, free: Any, total: Any) -> int:  # noqa: N802
        card = self.cards[self.current[-1]]
        free._obj.value, total._obj.value = card.free, card.total
        return card.tell


def compile_driver(folder: Path) -> dict[str, str]:
    """Compile the stand-in in C and return the environment in which a process takes it for NVIDIA's driver."""
    if sys.platform != "linux":
        pytest.skip("a library in LD_LIBRARY_PATH comes before the system's on Linux")
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("the stand-in for NVIDIA's driver takes a C compiler")
    source, library = Path(__file__).with_name("fake_cuda.c"), folder / "libcuda.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return {"LD_LIBRARY_PATH": str(folder)}
