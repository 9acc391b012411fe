"""The names of ``numba.cuda`` that mean something inside a kernel only: to the host each is a name with a docstring."""

from typing import Any, NoReturn

from nanoeuler.simt import names


class OutsideKernelError(AttributeError, NotImplementedError):
    """Host code used what only a kernel has. An AttributeError, so that looking a name up does no harm."""


class Stub:
    """A function or a value of kernels; the executors know it by its identity."""

    def __init__(self, name: str, doc: str) -> None:
        self.__name__ = name.rpartition(".")[2]
        self.__qualname__ = name
        self.__doc__ = doc

    def __repr__(self) -> str:
        return f"<cuda.{self.__qualname__}>"

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise OutsideKernelError(
            f"cuda.{self.__qualname__} works inside a kernel only: call it in a function decorated with @cuda.jit"
        )


class Namespace(Stub):
    """A prefix of kernels' names: ``atomic``, ``shared``, ``threadIdx`` ..."""

    def __getattr__(self, name: str) -> NoReturn:
        if name in ("x", "y", "z") and f"{self.__qualname__}.{name}" in names.INDICES:
            raise OutsideKernelError(f"cuda.{self.__qualname__}.{name} has a value inside a kernel only")
        raise AttributeError(f"cuda.{self.__qualname__} has no '{name}'")


DOCUMENTATION = {
    "threadIdx": "The thread's place in its block: x, y, z.",
    "blockIdx": "The block's place in the grid: x, y, z.",
    "blockDim": "The number of threads of a block: x, y, z.",
    "gridDim": "The number of blocks of the grid: x, y, z.",
    "laneid": "The thread's number in its warp, 0 to 31.",
    "warpsize": "The number of threads of a warp, 32.",
    "grid": "Return the thread's place in the whole grid, along 1, 2 or 3 axes.",
    "gridsize": "Return the number of threads of the whole grid, along 1, 2 or 3 axes.",
    "syncthreads": "Wait until all threads of the block have come here.",
    "syncthreads_count": "Wait as syncthreads does; return how many threads gave a true predicate.",
    "syncthreads_and": "Wait as syncthreads does; return whether all threads gave a true predicate.",
    "syncthreads_or": "Wait as syncthreads does; return whether any thread gave a true predicate.",
    "syncwarp": "Wait until the lanes of the mask have come here.",
    "shfl_sync": "Return the value of the lane with a given number.",
    "shfl_up_sync": "Return the value of the lane that is delta below this one.",
    "shfl_down_sync": "Return the value of the lane that is delta above this one.",
    "shfl_xor_sync": "Return the value of the lane whose number is this one's xor the given bits.",
    "all_sync": "Return whether the predicate is true in all lanes of the mask.",
    "any_sync": "Return whether the predicate is true in any lane of the mask.",
    "eq_sync": "Return whether the predicate is the same in all lanes of the mask.",
    "ballot_sync": "Return a mask of the lanes in which the predicate is true.",
    "match_any_sync": "Return a mask of the lanes that have this lane's value.",
    "match_all_sync": "Return the mask and True if all lanes of the mask have the same value, else 0 and False.",
    "activemask": "Return a mask of the lanes that are at this place together.",
    "lanemask_lt": "Return a mask of the lanes below this one.",
    "threadfence": "Let this thread's earlier writes be seen by the whole device before its later ones.",
    "threadfence_block": "Let this thread's earlier writes be seen by its block before its later ones.",
    "threadfence_system": "Let this thread's earlier writes be seen by host and devices before its later ones.",
    "popc": "Return the number of bits that are set.",
    "brev": "Return the bits in reverse order.",
    "clz": "Return the number of zeros above the highest bit that is set.",
    "ffs": "Return the place of the lowest bit that is set, counted from 1; 0 if there is none.",
    "selp": "Return the second argument where the first is true, else the third.",
    "fma": "Return a * b + c, rounded once.",
    "cbrt": "Return the cube root.",
    "nanosleep": "Pause the thread for about that many nanoseconds.",
    "ldca": "Load an element, cached at all levels.",
    "ldcg": "Load an element, cached in L2 only.",
    "ldcs": "Load an element that is likely to be read once.",
    "ldlu": "Load an element whose cache line is not used again.",
    "ldcv": "Load an element anew, past the caches.",
    "stcg": "Store an element, cached in L2 only.",
    "stcs": "Store an element that is likely to be written once.",
    "stwb": "Store an element, written back later from all levels of cache.",
    "stwt": "Store an element through the L2 cache to memory.",
    "shared": "Memory that the threads of a block share.",
    "shared.array": "Return an array that the threads of a block share; shape and dtype are constants.",
    "local": "Memory of one thread.",
    "local.array": "Return an array of this thread alone; shape and dtype are constants.",
    "const": "Memory that kernels only read.",
    "const.array_like": "Return a copy of a global array in constant memory.",
    "atomic": "Operations on one element that no other thread comes between; each returns what was there before.",
    "atomic.add": "Add a value to an element.",
    "atomic.sub": "Subtract a value from an element.",
    "atomic.max": "Replace an element by a greater value; NaN stays.",
    "atomic.min": "Replace an element by a smaller value; NaN stays.",
    "atomic.nanmax": "Replace an element by a greater value; NaN is replaced.",
    "atomic.nanmin": "Replace an element by a smaller value; NaN is replaced.",
    "atomic.and_": "Combine an element with a value by bitwise and.",
    "atomic.or_": "Combine an element with a value by bitwise or.",
    "atomic.xor": "Combine an element with a value by bitwise exclusive or.",
    "atomic.inc": "Add 1 to an element, or make it 0 where it has reached the value.",
    "atomic.dec": "Subtract 1 from an element, or make it the value where it is 0 or above the value.",
    "atomic.exch": "Put a value in an element's place.",
    "atomic.cas": "Put a value in an element's place if the element is as expected.",
    "atomic.compare_and_swap": "Put a value in an array's first element if that is as expected.",
}


def _names() -> dict[str, Stub]:
    """Return a stub for each name at the top of ``cuda`` that kernels use, those under a prefix as its attributes."""
    made: dict[str, Stub] = {}
    for name, doc in DOCUMENTATION.items():
        prefix, _, attribute = name.rpartition(".")
        if prefix:
            setattr(made[prefix], attribute, Stub(name, doc))
        else:
            made[name] = (Namespace if name in names.PREFIXES else Stub)(name, doc)
    for name, (component, width) in names.VECTORS.items():
        made[name] = Stub(name, f"Return a vector of {width} {component} with components {', '.join('xyzw'[:width])}.")
    return made


NAMES = _names()
