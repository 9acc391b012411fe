"""``numba.cuda.cg``, cooperative groups: names that kernels may have in them, and no executor runs."""

from nanoeuler.simt.cuda.stubs import Stub

this_grid = Stub("cg.this_grid", "Return the group of all threads of the grid. Not supported: use several launches.")
