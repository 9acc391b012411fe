"""The op table in NumPy: one file per op, forward beside backward, to be read and trusted.

The contract of every op: outputs first, then inputs, then scalars; outputs are preallocated, and what an op needs
besides is scratch memory that each thread keeps (dropout's random numbers are the exception); gradients of activations
are written, gradients of parameters are added to; arrays follow the dtype they are given (float64 for gradient checks,
float32 for training). Shapes are in the field's letters, said once per file.
"""

from nanoeuler.cpu.accumulate import accumulate
from nanoeuler.cpu.adamw import adamw
from nanoeuler.cpu.attention import attention_backward, attention_forward
from nanoeuler.cpu.cross_entropy import cross_entropy_backward, cross_entropy_forward
from nanoeuler.cpu.dropout import dropout_backward, dropout_forward
from nanoeuler.cpu.embedding import embedding_backward, embedding_forward
from nanoeuler.cpu.gelu import gelu_backward, gelu_forward
from nanoeuler.cpu.global_norm import global_norm
from nanoeuler.cpu.head_rmsnorm import head_rmsnorm_backward, head_rmsnorm_forward
from nanoeuler.cpu.layernorm import layernorm_backward, layernorm_forward
from nanoeuler.cpu.linear import linear_backward, linear_forward
from nanoeuler.cpu.memory import copy, empty, fill, from_numpy, to_numpy
from nanoeuler.cpu.parallel import Team, parallel, repeated, workers
from nanoeuler.cpu.residual import residual_backward, residual_forward
from nanoeuler.cpu.residual_layernorm import residual_layernorm_backward, residual_layernorm_forward
from nanoeuler.cpu.residual_rmsnorm import residual_rmsnorm_backward, residual_rmsnorm_forward
from nanoeuler.cpu.rmsnorm import rmsnorm_backward, rmsnorm_forward
from nanoeuler.cpu.rope import rope_backward, rope_forward, rope_tables
from nanoeuler.cpu.swiglu import swiglu_backward, swiglu_forward
from nanoeuler.cpu.total import total

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
