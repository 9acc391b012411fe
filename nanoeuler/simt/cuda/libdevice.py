"""``numba.cuda.libdevice`` to host code: a name for each function of the library, to be called inside kernels."""

from nanoeuler.simt.cuda.stubs import Stub as _Stub
from nanoeuler.simt.functions import libdevice as _functions

for _name in _functions.FUNCTIONS:
    globals()[_name] = _Stub(f"libdevice.{_name}", f"The function __nv_{_name} of CUDA's libdevice.")
