"""On a real GPU: parity, gradients, determinism, at the sizes of the other tests and at those of a 124M model.

``python -m pytest -m gpu``. Where there is no GPU each is skipped, with the reason.
"""

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpu.parity import Case, arguments_of, assert_close
from gpu.test_model import MODELS, batches, training

import nanoeuler.cpu
from nanoeuler.config import Config, ModelConfig, TrainingConfig
from nanoeuler.device import op_table, why_no_gpu
from nanoeuler.gradcheck import MODEL_CHECKS, OP_CHECKS, check_model, check_op
from nanoeuler.parity import compare_step
from nanoeuler.step import TrainingStep

REASON = why_no_gpu()
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(900),
    pytest.mark.skipif(REASON is not None, reason=(REASON or "").splitlines()[0] if REASON else ""),
]
DTYPES = ("float32", "tf32", "bf16")
every_dtype = pytest.mark.parametrize("dtype", DTYPES)
#: Largest relative difference from NumPy's float32 after products in each precision.
TOLERANCE = {"float32": 1e-4, "tf32": 2e-3, "bf16": 3e-2}
SMALL_GPT2 = {"preset": "gpt2", "vocab_size": 50257, "max_seq_len": 1024, "num_layers": 12, "num_heads": 12,
              "hidden_dim": 768}  # fmt: skip


def every_case() -> list[Case]:
    """Return the cases of the tests of all ops."""
    tests = sorted(path.stem for path in Path(__file__).parent.glob("test_*.py") if path.stem != "test_on_gpu")
    return [case for test in tests for case in getattr(importlib.import_module(f"gpu.{test}"), "CASES", ())]


def uploaded(ops: Any, x: Any) -> Any:
    """Return an array on the GPU; the rows of a slice lie apart there too."""
    if not isinstance(x, np.ndarray):
        return [uploaded(ops, part) for part in x] if isinstance(x, list) else x
    if x.flags.c_contiguous:
        out = ops.empty(x.size, x.dtype).reshape(x.shape)
        ops.from_numpy(out, x)
        return out
    if x.ndim == 2:
        wide = np.full((len(x), x.strides[0] // x.itemsize), np.nan, x.dtype)
        wide[:, : x.shape[1]] = x
        return uploaded(ops, wide)[:, : x.shape[1]]
    B, T, H, D = x.shape
    wide = np.full((B, T, x.strides[1] // x.strides[2], D), np.nan, x.dtype)
    wide[:, :, :H] = x
    return uploaded(ops, wide)[:, :, :H]


def downloaded(ops: Any, x: Any) -> np.ndarray:
    if not x.is_c_contiguous():
        whole = ops.empty(x.size, x.dtype).reshape(x.shape)
        ops.copy(whole, x)
        x = whole
    return ops.to_numpy(x)


def run_on(ops: Any, case: Case) -> dict[str, Any]:
    """Run a case on the GPU; return what it wrote."""
    given = {name: uploaded(ops, value) for name, value in arguments_of(case).items()}
    for written, read in case.aliases:
        given[written] = given[read]
    getattr(ops, case.op)(**given)
    return {name: downloaded(ops, given[name]) for name in case.outputs}


@pytest.mark.parametrize("case", every_case(), ids=str)
def test_every_case_equals_numpy_and_itself(case: Case) -> None:
    ops = op_table("gpu")
    expected = arguments_of(case)
    getattr(nanoeuler.cpu, case.op)(**expected)
    first, second = run_on(ops, case), run_on(ops, case)
    for name in case.outputs:
        assert_close(first[name], expected[name], f"{case}: {name}")
        assert first[name].tobytes() == second[name].tobytes(), f"{case}: {name} differs from run to run"


@pytest.mark.parametrize("check", OP_CHECKS, ids=lambda check: f"{check.op}, {check.case}")
def test_gradients_of_ops(check: Any) -> None:
    assert [row for row in check_op(check, op_table("gpu"), np.float32) if not row.passed] == []


@pytest.mark.parametrize("name", MODEL_CHECKS)
def test_gradients_of_models(name: str) -> None:
    rows = check_model(name, MODEL_CHECKS[name], op_table("gpu"), np.float32)
    assert [row for row in rows if not row.passed] == []


def ten_steps(ops: Any, config: ModelConfig, options: TrainingConfig) -> tuple[list[float], TrainingStep]:
    with TrainingStep(config, options, ops) as step:
        return [step.run(batches(config, options.gradient_accumulation, i), 3e-3).loss for i in range(10)], step


@every_dtype
@pytest.mark.parametrize("name", MODELS)
def test_ten_steps_give_numpys_losses_and_the_same_bits_again(name: str, dtype: str) -> None:
    options = training(gradient_accumulation=2)
    expected, _ = ten_steps(nanoeuler.cpu, MODELS[name], options)
    ops, options = op_table("gpu", dtype), options.model_copy(update={"dtype": dtype})
    runs = [ten_steps(ops, MODELS[name], options) for _ in range(2)]
    assert runs[0][0] == pytest.approx(expected, rel=TOLERANCE[dtype])
    for attribute in ("weights", "m", "v"):
        assert len({ops.to_numpy(getattr(step, attribute)).tobytes() for _, step in runs}) == 1


@pytest.mark.parametrize("name", MODELS)
def test_a_graph_does_what_its_launches_do(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ops = op_table("gpu")
    _, captured = ten_steps(ops, MODELS[name], training())
    if captured.passes.graph is None:
        pytest.skip(f"no graph: {captured.passes.without_graph}")  # then every other test ran launch by launch
    monkeypatch.setattr("nanoeuler.gpu.graph.Graph.capture", lambda work: (None, "switched off"))
    _, one_by_one = ten_steps(ops, MODELS[name], training())
    for attribute in ("weights", "m", "v"):
        a, b = (ops.to_numpy(getattr(step, attribute)) for step in (captured, one_by_one))
        assert a.tobytes() == b.tobytes()


def random_batch(config: ModelConfig, B: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    shape = (B, config.max_seq_len)
    return (
        random.integers(0, config.vocabulary, shape, np.int32),
        random.integers(0, config.vocabulary, (config.num_prediction_heads, *shape), np.int32),
    )


@every_dtype
def test_a_step_of_the_124m_model_agrees_tensor_by_tensor(dtype: str) -> None:
    model = ModelConfig(**SMALL_GPT2 | {"max_seq_len": 256})
    options = TrainingConfig(batch_size=2, workers=1, dtype=dtype)
    config = Config(model=model, training=options)
    comparison, result = compare_step(config, [random_batch(model, 2, 0)], op_table("gpu", dtype))
    assert comparison.first is None, comparison.first
    assert result.loss == pytest.approx(np.log(50257), rel=0.02)


@every_dtype
def test_steps_of_the_124m_model_have_the_same_bits_again_and_learn(dtype: str) -> None:
    model = ModelConfig(**SMALL_GPT2)
    options = TrainingConfig(batch_size=4, dtype=dtype)
    ops, digests, losses = op_table("gpu", dtype), [], []
    for _ in range(2):
        with TrainingStep(model, options, ops) as step:
            losses = [step.run([random_batch(model, 4, 0)], 3e-4).loss for _ in range(5)]
            digests.append(ops.to_numpy(step.weights).tobytes())
    assert digests[0] == digests[1]
    assert losses[-1] < losses[0] - 0.5  # the same batch again and again


@pytest.mark.parametrize(("N", "O", "I"), [(4096, 3072, 768), (4096, 768, 3072), (1000, 50257, 768), (1, 50257, 768)])
def test_our_product_equals_cublas(N: int, O: int, I: int) -> None:
    from nanoeuler.gpu import cublas, linear

    if not cublas.available():
        pytest.skip(cublas.why_not())  # it is not needed: our own product takes its place
    ops, random, results = op_table("gpu"), np.random.default_rng(0), []
    x, weight, bias, dout = (
        random.standard_normal(shape).astype(np.float32) for shape in ((N, I), (O, I), (O,), (N, O))
    )
    for use in (True, False):
        linear.products.use_cublas = use
        try:
            given = {n: uploaded(ops, v) for n, v in {"x": x, "weight": weight, "bias": bias, "dout": dout}.items()}
            out, dx = ops.empty(N * O, np.float32).reshape(N, O), ops.empty(N * I, np.float32).reshape(N, I)
            dweight, dbias = uploaded(ops, np.zeros((O, I), np.float32)), uploaded(ops, np.zeros(O, np.float32))
            ops.linear_forward(out, given["x"], given["weight"], given["bias"])
            ops.linear_backward(dx, dweight, dbias, given["dout"], given["x"], given["weight"])
        finally:
            linear.products.use_cublas = True
        results.append([ops.to_numpy(a) for a in (out, dx, dweight, dbias)])
    for library, ours, name in zip(*results, ("out", "dx", "dweight", "dbias"), strict=True):
        assert_close(ours, library, name)
