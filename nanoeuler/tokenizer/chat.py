"""Chat templates: messages into the text that a model was trained to answer, by the template that comes with it.

A template is a program in Jinja. It runs in Jinja's sandbox, which reaches neither files nor attributes of Python, with
the settings and functions that ``transformers`` gives it (utils/chat_template_utils.py), so that it says the same.
"""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib import import_module
from typing import Any

import numpy as np

from nanoeuler.errors import UserError
from nanoeuler.tokenizer.base import Tokenizer

#: A message: ``role`` (system, user, assistant, tool) and ``content``.
Message = Mapping[str, Any]
#: Characters that a template may write: more than any chat has, and less than a machine.
MOST_CHARACTERS = 10_000_000
#: Bits of a whole number that a power may have.
MOST_BITS = 10_000
#: A tag of transformers' own around what the model says, for training on that alone. Nothing comes of it in the text.
GENERATION = re.compile(r"(\{%[-+]?\s*)(end)?generation(\s*[-+]?%\})")


def render_chat(tokenizer: Tokenizer, messages: Sequence[Message], add_generation_prompt: bool = True) -> str:
    """Return the text of a conversation, special tokens written out.

    Args:
        tokenizer: with the template of its model.
        messages: in their order.
        add_generation_prompt: end with what begins the model's answer.

    Raises:
        UserError: there is no template, it is damaged, or it refuses these messages; or Jinja is not installed.
    """
    if tokenizer.chat_template is None:
        raise UserError("this model has no chat template: it was not trained to chat, or the template is missing")
    try:
        jinja2, sandbox = import_module("jinja2"), import_module("jinja2.sandbox")
    except ImportError:
        raise UserError("chat templates need Jinja: pip install -e '.[chat]'") from None
    environment = sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _tojson
    environment.globals |= {"raise_exception": _refuse, "strftime_now": lambda form: datetime.now().strftime(form)}
    environment.intercepted_binops = frozenset({"*", "**"})  # what makes much of little
    environment.binop_table |= {"*": _times, "**": _power}
    try:
        template = environment.from_string(GENERATION.sub(_transparent, tokenizer.chat_template))
        pieces, size = [], 0
        for piece in template.generate(
            messages=list(messages),
            tools=None,
            documents=None,
            add_generation_prompt=add_generation_prompt,
            **_tokens(tokenizer),
        ):
            pieces.append(piece)
            size += len(piece)
            if size > MOST_CHARACTERS:
                raise UserError(f"the chat template writes more than {MOST_CHARACTERS:,} characters")
    except MemoryError:
        raise UserError("the chat template takes more memory than there is") from None
    except (jinja2.TemplateError, TypeError, ValueError, ArithmeticError, LookupError, RecursionError) as error:
        raise UserError(f"the chat template cannot be used on these messages: {error}") from None
    return "".join(pieces)


def encode_chat(tokenizer: Tokenizer, messages: Sequence[Message], add_generation_prompt: bool = True) -> np.ndarray:
    """Return the ids of a conversation, (N,) int32. The template writes BOS itself, where there is any.

    Raises:
        UserError: as :func:`render_chat`.
    """
    return tokenizer.encode(render_chat(tokenizer, messages, add_generation_prompt), allowed_special="all")


def _tokens(tokenizer: Tokenizer) -> dict[str, str]:
    """Return the special tokens by the names that templates have for them; what a tokenizer lacks is undefined."""
    text_of = {i: token for token, i in tokenizer.special.items()}
    ids = {"bos_token": tokenizer.bos, "eos_token": tokenizer.eos}
    return {name: text_of[i] for name, i in ids.items() if i is not None} | dict(tokenizer.token_names)


def _times(a: Any, b: Any) -> Any:
    """Return a product, unless a text or a list becomes too long by it."""
    for items, count in ((a, b), (b, a)):
        if hasattr(items, "__len__") and isinstance(count, int) and len(items) * count > MOST_CHARACTERS:
            raise ValueError(f"it repeats something to more than {MOST_CHARACTERS:,} items")
    return a * b


def _power(a: Any, b: Any) -> Any:
    if isinstance(a, int) and isinstance(b, int) and abs(b) * a.bit_length() > MOST_BITS:
        raise ValueError(f"a power has more than {MOST_BITS:,} bits")
    return a**b


def _transparent(tag: "re.Match[str]") -> str:
    return f"{tag[1]}{'endif' if tag[2] else 'if true'}{tag[3]}"


def _tojson(
    value: Any, ensure_ascii: bool = False, indent: int | None = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """Return JSON as it is: Jinja's own filter would escape it for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _refuse(message: str) -> None:
    raise import_module("jinja2").TemplateError(message)
