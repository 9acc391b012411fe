"""Launches a kernel of the module beside it; the fault is there. Takes the number of elements as its argument."""

import sys

import numpy as np
import stencil_kernels

x = np.ones(int(sys.argv[1]), np.float32)
out = np.zeros_like(x)
stencil_kernels.shifted[1, 32](out, x)
print("ran", sys.argv[1:], __name__)
