"""The items of a task: what a model is asked, in which file and line it stands, and which choice is right."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Choice:
    """A continuation whose likelihood after a context is what a choice is judged by."""

    context: str
    continuation: str
    text: str = ""  # of the choice alone: by its length the likelihood is normalised


@dataclass(frozen=True)
class Item:
    """A question of a task."""

    place: str  # file:line
    choices: tuple[Choice, ...]
    answer: int  # the index of the right one
    subject: str = ""


def choices_after(context: str, texts: list[str]) -> tuple[Choice, ...]:
    """Return choices that continue one context, after a space."""
    return tuple(Choice(context, " " + text, text) for text in texts)
