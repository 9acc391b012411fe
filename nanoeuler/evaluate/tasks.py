"""The tasks by name, and what comes of a model's likelihoods: accuracies with their standard errors."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nanoeuler.errors import UserError, nearest
from nanoeuler.evaluate.arc import read_arc
from nanoeuler.evaluate.hellaswag import read_hellaswag
from nanoeuler.evaluate.items import Item
from nanoeuler.evaluate.lambada import read_lambada
from nanoeuler.evaluate.likelihood import Likelihood
from nanoeuler.evaluate.metrics import mean_and_error, perplexity
from nanoeuler.evaluate.mmlu import read_mmlu
from nanoeuler.evaluate.piqa import read_piqa
from nanoeuler.evaluate.winogrande import read_winogrande

#: What a choice's log-likelihood is divided by.
LENGTHS: dict[str, Callable[[str], int]] = {
    "acc": lambda text: 1,
    "acc_norm": len,
    "acc_bytes": lambda text: len(text.encode()),
}


@dataclass(frozen=True)
class Task:
    """How a task's files are read, and what is measured.

    - ``acc``: how often the likeliest choice is the right one.
    - ``acc_norm``: the same of log-likelihoods divided by the choice's characters, as lm-evaluation-harness has it: a
      long choice is not at a disadvantage. ``acc_bytes`` divides by its UTF-8 bytes, which is another number where
      text is not ASCII.
    - ``greedy``: how often every token of the only choice is the likeliest one; called ``acc`` too. With it goes the
      perplexity of the choices.
    """

    read: Callable[[Path, int], list[Item]]  # of a path, with so many examples before each
    measures: tuple[str, ...] = ("acc", "acc_norm", "acc_bytes")


TASKS = {
    "hellaswag": Task(lambda path, shots: read_hellaswag(path)),
    "piqa": Task(lambda path, shots: read_piqa(path)),
    "arc": Task(lambda path, shots: read_arc(path)),
    "winogrande": Task(lambda path, shots: read_winogrande(path), ("acc",)),
    "lambada": Task(lambda path, shots: read_lambada(path), ("greedy",)),
    "mmlu": Task(read_mmlu, ("acc",)),
}


def parse_task(text: str) -> tuple[str, Path]:
    """Return the name and the path of ``NAME=PATH``.

    Raises:
        UserError: it is not of this form, or there is no such task.
    """
    name, _, path = text.partition("=")
    if name not in TASKS:
        raise UserError(f"--task {text}: unknown task '{name}'{nearest(name, TASKS)}; tasks are {', '.join(TASKS)}")
    if not path:
        raise UserError(f"--task {text}: expected is {name}=PATH, the path of its published file")
    return name, Path(path)


def read_items(name: str, path: Path, shots: int, limit: int | None) -> list[Item]:
    """Return the items of a task, of each subject not more than ``limit``.

    Raises:
        UserError: its files are missing, or something in them is not as it is published.
    """
    items, times = TASKS[name].read(path, shots), dict[str, int]()
    kept = []
    for item in items:
        times[item.subject] = times.get(item.subject, 0) + 1
        if limit is None or times[item.subject] <= limit:
            kept.append(item)
    return kept


def measure(name: str, items: Sequence[Item], found: Sequence[Sequence[Likelihood]]) -> dict[str, Any]:
    """Return the numbers of a task by name: each measure and its standard error, and those of every subject."""
    result: dict[str, Any] = {"items": len(items)}
    if "greedy" in TASKS[name].measures:
        return result | _only_choices([each[0] for each in found])
    for by in TASKS[name].measures:
        result |= _named(by, _right(items, found, by))
    if any(item.subject for item in items):
        result |= _of_subjects(items, _right(items, found, "acc"))
    return result


def _only_choices(found: Sequence[Likelihood]) -> dict[str, float | None]:
    """Return the measures of items with one choice. A perplexity's error follows from that of its logarithm."""
    nats, error = mean_and_error([-each.log for each in found])
    result = _named("acc", [float(bool(each.greedy)) for each in found])
    spread = None if error is None else perplexity(nats) * error
    return result | {"perplexity": perplexity(nats), "perplexity_stderr": spread}


def _of_subjects(items: Sequence[Item], right: Sequence[float]) -> dict[str, Any]:
    """Return the accuracy in every subject, and the mean of these: small subjects count as much as large ones."""
    values: dict[str, list[float]] = {}
    for item, value in zip(items, right, strict=True):
        values.setdefault(item.subject, []).append(value)
    subjects = {subject: {"items": len(own), **_named("acc", own)} for subject, own in values.items()}
    return {"subjects": subjects, "mean_of_subjects": math.fsum(map(_mean, values.values())) / len(values)}


def chosen(item: Item, found: Sequence[Likelihood], measure: str = "acc") -> int:
    """Return the index of the choice that a model takes by a measure; the first of equals."""
    length = LENGTHS[measure]
    return int(np.argmax([e.log / max(1, length(c.text)) for e, c in zip(found, item.choices, strict=True)]))


def _right(items: Sequence[Item], found: Sequence[Sequence[Likelihood]], by: str) -> list[float]:
    """Return 1 where the choice that a model takes is the right one, 0 elsewhere."""
    return [float(chosen(item, each, by) == item.answer) for item, each in zip(items, found, strict=True)]


def _mean(values: Sequence[float]) -> float:
    return mean_and_error(values)[0]


def _named(name: str, values: Sequence[float]) -> dict[str, float | None]:
    mean, error = mean_and_error(values)
    return {name: mean, f"{name}_stderr": error}
