"""Benchmarks: ``python -m nanoeuler.bench NAME``. Each times us beside somebody else, in turns, on the same work.

* ``train`` (:mod:`~nanoeuler.bench.train`): a training step beside PyTorch's. What is run is in
  :mod:`~nanoeuler.bench.workload`, who runs it in :mod:`~nanoeuler.bench.contender` and
  :mod:`~nanoeuler.bench.pytorch`; :mod:`~nanoeuler.bench.memory` weighs each in a process of its own.
* ``ops`` (:mod:`~nanoeuler.bench.ops`, ``ops_*.py``): each op by itself, beside what the machine can do and PyTorch.
* ``simt`` (:mod:`~nanoeuler.bench.simt`, ``simt_*.py``): the executors of kernels on a CPU, beside Numba's simulator.
* ``trace`` (:mod:`~nanoeuler.bench.trace`): what it costs to watch a kernel, beside running it checked.
* ``tokenizer`` (:mod:`~nanoeuler.bench.tokenizer`, ``tokenizer_*.py``): training a byte-level BPE, and encoding, beside
  Hugging Face's Rust library.
* ``corpus`` (:mod:`~nanoeuler.bench.corpus`): preparing a corpus, beside tiktoken's batch encoding.
* ``loader`` (:mod:`~nanoeuler.bench.loader`): how long training waits for its batches, with and without prefetching.

:mod:`~nanoeuler.bench.measure` has the clock, the turns and the statistics of all.
"""
