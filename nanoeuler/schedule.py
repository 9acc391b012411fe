"""The learning rate of each step: a linear warm-up, then one of four shapes."""

import math

from nanoeuler.config import TrainingConfig


def learning_rate(step: int, training: TrainingConfig) -> float:
    """Return the learning rate of a step, counted from 0.

    After ``warmup_steps`` of linear warm-up the rate is the peak, and then

    * cosine: half a cosine down to the lowest rate at the last step (Loshchilov & Hutter 2017, arXiv:1608.03983);
    * linear: a straight line to the same;
    * constant: the peak;
    * wsd: the peak, and in the last ``decay_fraction`` of the steps a straight line down (Hu et al. 2024,
      arXiv:2404.06395: warm-up, stable, decay).
    """
    peak, lowest = training.learning_rate, training.learning_rate * training.min_learning_rate
    if step < training.warmup_steps:
        return peak * (step + 1) / (training.warmup_steps + 1)
    start = training.warmup_steps
    if training.schedule == "wsd":
        start = max(start, round(training.total_steps * (1 - training.decay_fraction)))
    done = (step - start) / max(1, training.total_steps - 1 - start)  # 0 at the start, 1 at the last step
    done = min(1.0, max(0.0, done))
    if training.schedule == "constant":
        return peak
    left = (1 + math.cos(math.pi * done)) / 2 if training.schedule == "cosine" else 1 - done
    return lowest + (peak - lowest) * left
