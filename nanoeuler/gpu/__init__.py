"""The op table in Numba CUDA kernels: the same files, functions and parameters as :mod:`nanoeuler.cpu`.

Each file is one op: kernels, decorated with ``cuda.jit``, and the functions of the op table, which compute the shape of
a launch and make it. The formulas and the contract of an op stand in its file in :mod:`nanoeuler.cpu`; here stands how
the work is shared out among threads. A launch runs where its arrays lie: in the GPU's memory on the GPU, in the
host's through :mod:`nanoeuler.simt` on the CPU.
"""

from nanoeuler.gpu.accumulate import accumulate
from nanoeuler.gpu.adamw import adamw
from nanoeuler.gpu.attention import attention_backward, attention_forward
from nanoeuler.gpu.cross_entropy import cross_entropy_backward, cross_entropy_forward
from nanoeuler.gpu.dropout import dropout_backward, dropout_forward
from nanoeuler.gpu.embedding import embedding_backward, embedding_forward
from nanoeuler.gpu.gelu import gelu_backward, gelu_forward
from nanoeuler.gpu.global_norm import global_norm
from nanoeuler.gpu.head_rmsnorm import head_rmsnorm_backward, head_rmsnorm_forward
from nanoeuler.gpu.layernorm import layernorm_backward, layernorm_forward
from nanoeuler.gpu.linear import linear_backward, linear_forward
from nanoeuler.gpu.memory import copy, empty, fill, from_numpy, to_numpy
from nanoeuler.gpu.parallel import Team, parallel, repeated, workers
from nanoeuler.gpu.residual import residual_backward, residual_forward
from nanoeuler.gpu.residual_layernorm import residual_layernorm_backward, residual_layernorm_forward
from nanoeuler.gpu.residual_rmsnorm import residual_rmsnorm_backward, residual_rmsnorm_forward
from nanoeuler.gpu.rmsnorm import rmsnorm_backward, rmsnorm_forward
from nanoeuler.gpu.rope import rope_backward, rope_forward, rope_tables
from nanoeuler.gpu.swiglu import swiglu_backward, swiglu_forward
from nanoeuler.gpu.total import total

__all__ = [
    "Team",
    "accumulate",
    "adamw",
    "attention_backward",
    "attention_forward",
    "copy",
    "cross_entropy_backward",
    "cross_entropy_forward",
    "dropout_backward",
    "dropout_forward",
    "embedding_backward",
    "embedding_forward",
    "empty",
    "fill",
    "from_numpy",
    "gelu_backward",
    "gelu_forward",
    "global_norm",
    "head_rmsnorm_backward",
    "head_rmsnorm_forward",
    "layernorm_backward",
    "layernorm_forward",
    "linear_backward",
    "linear_forward",
    "parallel",
    "repeated",
    "residual_backward",
    "residual_forward",
    "residual_layernorm_backward",
    "residual_layernorm_forward",
    "residual_rmsnorm_backward",
    "residual_rmsnorm_forward",
    "rmsnorm_backward",
    "rmsnorm_forward",
    "rope_backward",
    "rope_forward",
    "rope_tables",
    "swiglu_backward",
    "swiglu_forward",
    "to_numpy",
    "total",
    "workers",
]
