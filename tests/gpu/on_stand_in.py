"""Run in a process of its own by test_stand_in.py: trains with the op table for a real GPU, which a stand-in plays.

Prints JSON: losses and norms of both op tables, and how often device memory was allocated in the steps.
"""

import json
import os

os.environ["NUMBA_ENABLE_CUDASIM"] = "1"  # makes nanoeuler.gpu.backend take nanoeuler.simt.cuda

import numpy as np

import nanoeuler.cpu
import nanoeuler.gpu
from nanoeuler.config import Config, ModelConfig, TrainingConfig
from nanoeuler.gpu import backend, memory
from nanoeuler.gpu.rehearsal import rehearse
from nanoeuler.model import Transformer
from nanoeuler.sampling import Sampling, generate
from nanoeuler.step import TrainingStep

MODEL = ModelConfig(
    vocab_size=37, max_seq_len=5, num_layers=2, num_heads=4, num_kv_heads=2, hidden_dim=24, num_prediction_heads=2,
    dropout=0.1, init_std=0.1,
)  # fmt: skip


def batches(count: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    random = np.random.default_rng(seed)
    shape = (2, MODEL.max_seq_len)
    heads = MODEL.num_prediction_heads
    return [
        (random.integers(0, 37, shape, np.int32), random.integers(-3, 37, (heads, *shape), np.int32))
        for _ in range(count)
    ]


def main(dtype: str) -> None:
    training = TrainingConfig(batch_size=2, gradient_accumulation=2, workers=1, pieces=1, dtype=dtype)
    plain = training.model_copy(update={"dtype": "float32"})
    reserved = rehearse(Config(model=MODEL, training=training)).allocated
    memory.reserve(reserved)
    allocations = []
    allocate = backend.cuda.device_array
    backend.cuda.device_array = lambda *a, **k: allocations.append(a) or allocate(*a, **k)
    results = []
    for ops, options in ((nanoeuler.cpu, plain), (nanoeuler.gpu, training)):
        with TrainingStep(MODEL, options, ops) as step:
            rows = [step.run(batches(2, i), 1e-2) for i in range(3)]
            results.append([[row.loss, row.grad_norm] for row in rows])
            evaluated = step.evaluate(batches(1, 9))
            sampler = Transformer(MODEL, ops, step.model_weights, 1, MODEL.max_seq_len, "generation")
            tokens = generate(sampler, np.array([1], np.int32), 37, Sampling(temperature=0), (0,))
            results[-1].append([evaluated, float(sum(next(tokens) for _ in range(7)))])
    print(json.dumps({"results": results, "allocations": len(allocations), "used": memory._arena.used,
                      "reserved": reserved, "passes": type(step.passes).__name__,
                      "without_graph": step.passes.without_graph,
                      "on_gpu": bool(nanoeuler.gpu.launch.on_gpu(step.weights))}))  # fmt: skip


if __name__ == "__main__":
    import sys

    main(sys.argv[1])
