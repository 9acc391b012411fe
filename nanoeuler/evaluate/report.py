"""The results as lines for people and as records for JSON."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from nanoeuler.console import plural
from nanoeuler.evaluate.items import Item
from nanoeuler.evaluate.likelihood import Likelihood
from nanoeuler.evaluate.text import TextLoss


def text_line(name: str, loss: TextLoss) -> str:
    """Return the line of a text."""
    bits = "" if loss.bits_per_byte is None else f"  {loss.bits_per_byte:.4f} bits per byte"
    size = f"{plural(loss.tokens, 'token')}, {plural(loss.text_bytes, 'byte')}"
    return f"{name}: loss {loss.loss:.4f}  perplexity {loss.perplexity:.4g}{bits}  ({size})"


def text_record(loss: TextLoss) -> dict[str, Any]:
    """Return the numbers of a text, for JSON."""
    return _finite(
        {
            "tokens": loss.tokens,
            "bytes": loss.text_bytes,
            "loss": loss.loss,
            "perplexity": loss.perplexity,
            "bits_per_byte": loss.bits_per_byte,
        }
    )


def task_lines(name: str, result: dict[str, Any]) -> Iterator[str]:
    """Yield the line of a task and those of its subjects."""
    subjects = result.get("subjects", {})
    for subject, own in subjects.items():
        yield f"  {subject}: {_measures(own)}"
    mean = f"  mean of {plural(len(subjects), 'subject')} {result['mean_of_subjects']:.4f}" if subjects else ""
    yield f"{name}: {_measures(result)}{mean}"


def _measures(result: dict[str, Any]) -> str:
    """Return in words every measure that has a standard error, and the number of items."""
    parts = []
    for key, error in result.items():
        if measured := key.removesuffix("_stderr") if key.endswith("_stderr") else "":
            spread = "" if error is None else f" ± {error:.4f}"
            parts.append(f"{measured} {result[measured]:.4f}{spread}")
    return f"{'  '.join(parts)}  ({plural(result['items'], 'item')})"


def task_record(result: dict[str, Any], items: Sequence[Item], found: Sequence[Sequence[Likelihood]]) -> dict[str, Any]:
    """Return the numbers of a task, for JSON, with what it takes to check them: each item's place and likelihoods."""
    each = [
        {"place": item.place, "answer": item.answer, "log_likelihoods": [choice.log for choice in choices]}
        for item, choices in zip(items, found, strict=True)
    ]
    return _finite(result) | {"each": each}


def _finite(numbers: dict[str, Any]) -> dict[str, Any]:
    """Return numbers with None for those that are infinite, which JSON does not have."""
    return {key: None if isinstance(x, float) and not math.isfinite(x) else x for key, x in numbers.items()}
