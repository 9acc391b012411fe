"""How good is a model? ``python -m nanoeuler.evaluate MODEL``: its loss on text, and choices by their likelihood.

One idea in each file::

    engine        a model on a device, working through batches
    windows       a long text in overlapping windows
    sources       what is asked for, as streams of tokens
    text          loss, perplexity and bits per byte of a text
    items         a question and its choices
    hellaswag …   the tasks, each read from its published files: arc, hellaswag, lambada, mmlu, piqa, winogrande
    records       the lines of such files, and what is wrong with them
    rows          items as rows of tokens, in batches
    likelihood    how likely a model finds the choices
    tasks         the tasks by name, and what is measured
    report        results as lines and as JSON
    metrics       means and their standard errors
    progress      what is shown meanwhile
"""

from nanoeuler.evaluate.engine import Engine
from nanoeuler.evaluate.items import Choice, Item
from nanoeuler.evaluate.likelihood import Likelihood, likelihoods
from nanoeuler.evaluate.sources import Source, corpus_sources, text_source
from nanoeuler.evaluate.tasks import TASKS, measure, read_items
from nanoeuler.evaluate.text import TextLoss, text_loss
from nanoeuler.evaluate.windows import Window, sliding_windows

__all__ = [
    "TASKS",
    "Choice",
    "Engine",
    "Item",
    "Likelihood",
    "Source",
    "TextLoss",
    "Window",
    "corpus_sources",
    "likelihoods",
    "measure",
    "read_items",
    "sliding_windows",
    "text_loss",
    "text_source",
]
