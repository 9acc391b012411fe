"""The device that is not there: its properties, context, streams and events. Work is done at once, in order."""

import time
from asyncio import Future, get_running_loop
from collections import namedtuple
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from nanoeuler.simt import launch

MemoryInfo = namedtuple("MemoryInfo", ["free", "total"])
TOTAL_MEMORY = 8 << 30  # bytes; nothing is refused for being larger


class Stream:
    """A queue of work. What is put in it has been done when the call returns."""

    def __init__(self, handle: int = 0) -> None:
        self.handle = handle

    def __int__(self) -> int:
        return self.handle

    def __repr__(self) -> str:
        return f"<CUDA stream {self.handle}>" if self.handle else "<Default CUDA stream>"

    def synchronize(self) -> None:
        """Wait for the work: it is done."""

    @contextmanager
    def auto_synchronize(self) -> Iterator["Stream"]:
        """Synchronize at the context's end."""
        yield self

    def add_callback(self, callback: Callable[["Stream", int, Any], None], arg: Any = None) -> None:
        """Call ``callback(stream, status, arg)`` now, when all earlier work is done; the status is 0."""
        callback(self, 0, arg)

    def async_done(self) -> Future:
        """Return an awaitable that is done when the work is: now."""
        done = get_running_loop().create_future()
        done.set_result(self)
        return done


class Event:
    """A point in time, on the clock of the host."""

    def __init__(self, timing: bool = True) -> None:
        self.timing = timing
        self.recorded: float | None = None  # seconds

    def record(self, stream: Any = 0) -> None:
        """Take the time."""
        self.recorded = time.perf_counter()

    def query(self) -> bool:
        """Return whether the work before the event is done: it is."""
        return True

    def synchronize(self) -> None:
        """Wait for the event: it is past."""

    def wait(self, stream: Any = 0) -> None:
        """Let a stream wait for the event: it is past."""

    def elapsed_time(self, evtend: "Event") -> float:
        """Return the milliseconds from this event to ``evtend``: those that the CPU took."""
        return event_elapsed_time(self, evtend)


def event_elapsed_time(evtstart: Event, evtend: Event) -> float:
    """Return the milliseconds between two events.

    Raises:
        ValueError: one was not recorded, or made with timing=False.
    """
    if evtstart.recorded is None or evtend.recorded is None or not (evtstart.timing and evtend.timing):
        raise ValueError("both events must be made with timing=True and recorded")
    return (evtend.recorded - evtstart.recorded) * 1000


class Device:
    """What a script may ask about its GPU. It is small, so that a grid made to fill it is small too."""

    id = 0
    name = "no GPU: kernels run on the CPU (nanoeuler.simt)"
    uuid = "GPU-00000000-0000-0000-0000-000000000000"
    compute_capability = (9, 0)
    supports_float16 = supports_bfloat16 = supports_fp8 = True

    WARP_SIZE = launch.WARP_SIZE
    MAX_THREADS_PER_BLOCK = launch.MAX_BLOCK_THREADS
    MAX_BLOCK_DIM_X, MAX_BLOCK_DIM_Y, MAX_BLOCK_DIM_Z = launch.MAX_BLOCK
    MAX_GRID_DIM_X, MAX_GRID_DIM_Y, MAX_GRID_DIM_Z = launch.MAX_GRID
    MULTIPROCESSOR_COUNT = 4
    MAX_THREADS_PER_MULTI_PROCESSOR = MAX_THREADS_PER_MULTIPROCESSOR = 2048
    MAX_BLOCKS_PER_MULTIPROCESSOR = 32
    MAX_REGISTERS_PER_BLOCK = MAX_REGISTERS_PER_MULTIPROCESSOR = 65536
    MAX_SHARED_MEMORY_PER_BLOCK = 48 << 10
    MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 227 << 10
    MAX_SHARED_MEMORY_PER_MULTIPROCESSOR = 228 << 10
    TOTAL_CONSTANT_MEMORY = 64 << 10
    CLOCK_RATE = MEMORY_CLOCK_RATE = 1_000_000  # kHz
    GLOBAL_MEMORY_BUS_WIDTH = 128
    L2_CACHE_SIZE = 4 << 20
    COMPUTE_CAPABILITY_MAJOR, COMPUTE_CAPABILITY_MINOR = compute_capability
    PCI_DOMAIN_ID = PCI_BUS_ID = PCI_DEVICE_ID = 0
    UNIFIED_ADDRESSING = MANAGED_MEMORY = CAN_MAP_HOST_MEMORY = CONCURRENT_KERNELS = 1
    COOPERATIVE_LAUNCH = INTEGRATED = ASYNC_ENGINE_COUNT = 0

    def __repr__(self) -> str:
        return f"<CUDA device {self.id} '{self.name}'>"

    def __enter__(self) -> "Device":
        return self

    def __exit__(self, *exception: object) -> None:
        return None

    def get_primary_context(self) -> "Context":
        """Return the one context."""
        return _context

    def get_device_identity(self) -> dict[str, int]:
        """Return where the device would be plugged in."""
        return {"pci_domain_id": 0, "pci_bus_id": 0, "pci_device_id": 0}

    def reset(self) -> None:
        """Do nothing: there is nothing to forget."""


class Context:
    """The one context of the one device."""

    def __init__(self, device: Device) -> None:
        self.device = device

    @property
    def id(self) -> int:
        """The device's number."""
        return self.device.id

    def get_memory_info(self) -> MemoryInfo:
        """Return free and total bytes of the device: made up."""
        return MemoryInfo(TOTAL_MEMORY, TOTAL_MEMORY)

    def synchronize(self) -> None:
        """Wait for all work: it is done."""

    push = pop = reset = enable_peer_access = synchronize

    def create_stream(self) -> Stream:
        """Return a new stream."""
        return stream()

    def get_default_stream(self) -> Stream:
        """Return the default stream."""
        return default_stream()

    def create_event(self, timing: bool = True) -> Event:
        """Return a new event."""
        return Event(timing)

    @contextmanager
    def defer_cleanup(self) -> Iterator[None]:
        """Free no memory while the context lasts: none is freed by hand here."""
        yield


class DeviceList(list):
    """The devices: one."""

    @property
    def lst(self) -> list[Device]:
        """The devices as a plain list."""
        return list(self)

    @property
    def current(self) -> Device:
        """The device in use."""
        return self[0]


class Runtime:
    """What a script may ask about the CUDA runtime."""

    def get_version(self) -> tuple[int, int]:
        """Return the version whose rules are followed."""
        return 13, 0

    def is_supported_version(self) -> bool:
        """Return True."""
        return True


_context = Context(Device())
gpus = DeviceList([_context.device])
runtime = Runtime()
_default = Stream()
_streams = 0


def stream() -> Stream:
    """Return a new stream."""
    global _streams
    _streams += 1
    return Stream(_streams + 2)  # 1 and 2 are the handles of the two default streams


def default_stream() -> Stream:
    """Return the default stream."""
    return _default


legacy_default_stream = per_thread_default_stream = default_stream


def external_stream(ptr: int) -> Stream:
    """Return a stream with a handle made elsewhere."""
    return Stream(ptr)


def event(timing: bool = True) -> Event:
    """Return a new event."""
    return Event(timing)


def synchronize() -> None:
    """Wait for all work: it is done."""


def current_context(devnum: int | None = None) -> Context:
    """Return the one context."""
    if devnum is not None:
        select_device(devnum)
    return _context


def get_current_device() -> Device:
    """Return the one device."""
    return _context.device


def list_devices() -> DeviceList:
    """Return the devices: one."""
    return gpus


def select_device(device_id: int) -> Device:
    """Return the device of a number.

    Raises:
        IndexError: it is not 0.
    """
    return gpus[device_id]


def close() -> None:
    """Forget all contexts: there is nothing to forget."""


reset = profile_start = profile_stop = close


@contextmanager
def profiling() -> Iterator[None]:
    """Profile what is done while the context lasts: there is no profiler."""
    yield


def defer_cleanup() -> Any:
    """Free no memory while the context lasts."""
    return _context.defer_cleanup()


def detect() -> bool:
    """Print the devices; return True, as for a usable one."""
    print(f"Found {len(gpus)} CUDA devices\nid 0    {gpus[0].name}")
    return True


def is_available() -> bool:
    """Return True: kernels can be launched."""
    return True


def cuda_error() -> None:
    """Return None: no driver has failed."""


is_supported_version = is_float16_supported = is_bfloat16_supported = is_fp8_supported = is_available
