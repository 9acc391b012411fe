"""Having the next items ready before they are asked for."""

import threading
import time
from collections.abc import Iterator
from queue import SimpleQueue
from types import TracebackType
from typing import Generic, TypeVar

Item = TypeVar("Item")

#: Items that lie ready at most.
READY = 4


class Prefetch(Generic[Item]):
    """An iterator whose items a thread takes from another one, some ahead; used as a ``with`` block around it.

    What the other iterator raises is raised here, in the place of the item that it did not give. The end of the block
    ends the thread, however the block was left.
    """

    def __init__(self, items: Iterator[Item], ready: int = READY) -> None:
        self.waited = 0.0  # seconds spent waiting for items
        self._items = items
        self._room = threading.Semaphore(ready)
        self._ready: SimpleQueue[tuple[Item] | BaseException] = SimpleQueue()
        self._stop = False
        self._thread = threading.Thread(target=self._work, name="prefetch", daemon=True)

    def __enter__(self) -> "Prefetch[Item]":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop = True
        self._room.release()  # it may be waiting for room
        self._thread.join()

    def __iter__(self) -> Iterator[Item]:
        return self

    def __next__(self) -> Item:
        start = time.perf_counter()
        item = self._ready.get()
        self.waited += time.perf_counter() - start
        if isinstance(item, BaseException):
            self._ready.put(item)  # for whoever asks again
            raise item
        self._room.release()
        return item[0]

    def _work(self) -> None:
        try:
            while self._room.acquire() and not self._stop:
                self._ready.put((next(self._items),))
        except BaseException as error:  # StopIteration too: each is for whoever asks for the item
            self._ready.put(error)
