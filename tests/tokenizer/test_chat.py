"""Chat templates: what transformers renders, on templates in the styles that are about."""

from pathlib import Path
from typing import Any

import pytest
from tokenizer.families import CHATML, llama2, qwen

from nanoeuler.errors import UserError
from nanoeuler.tokenizer import ByteTokenizer, Tokenizer, load_tokenizer
from nanoeuler.tokenizer.chat import encode_chat, render_chat

pytest.importorskip("jinja2", reason="templates are Jinja's (the extra 'chat')")
pytest.importorskip("tokenizers", reason="the tokenizers of these tests are made by tokenizers")

TALK = [
    {"role": "user", "content": "Hello, how <are> 'you'? 東"},
    {"role": "assistant", "content": "  Well.\n"},
    {"role": "user", "content": "Good"},
]
TEMPLATES = {
    "chatml": CHATML,
    "llama3": "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
    "{{ m.content | trim }}<|eot_id|>{% endfor %}\n{% if add_generation_prompt %}\nassistant\n{% endif %}",
    "mistral": "{{ bos_token }}{% for message in messages %}\n"
    "    {% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}\n"
    "        {{ raise_exception('roles must alternate') }}\n    {% endif %}\n"
    "    {%- if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}\n"
    "    {%- else %}{{ message['content'] + eos_token }}{% endif %}{% endfor %}",
    "zephyr": "{% for m in messages %}\n{% if m['role'] == 'user' %}\n{{ '<|user|>\n' + m['content'] + eos_token }}\n"
    "{% else %}\n{{ '<|assistant|>\n' + m['content'] + eos_token }}\n{% endif %}\n"
    "{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}",
    "names of tokens": "{{ unk_token }}|{{ pad_token }}|{{ bos_token is defined }}|{{ nothing_token }}|{{ eos_token }}",
    "loops, JSON and dates": "{% for m in messages %}{% if loop.index > 2 %}{% break %}{% endif %}{{ m | tojson }}"
    "{% set ns = namespace(n=0) %}{% generation %}{{ ns.n }}{%- endgeneration %}{% endfor %}"
    "{{ strftime_now('%Y') | length }}",
}  # fmt: skip


def with_template(folder: Path, template: str, make: Any = qwen) -> Tokenizer:
    make(folder)
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    return load_tokenizer(folder)


@pytest.mark.parametrize("add", [True, False])
@pytest.mark.parametrize("make", [qwen, llama2])
@pytest.mark.parametrize("name", TEMPLATES)
def test_equals_transformers(name: str, make: Any, add: bool, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="the oracle of this test is transformers")
    ours = with_template(tmp_path, TEMPLATES[name], make)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    expected = theirs.apply_chat_template(TALK, tokenize=False, add_generation_prompt=add)
    assert render_chat(ours, TALK, add) == expected
    assert encode_chat(ours, TALK, add).tolist() == theirs(expected, add_special_tokens=False)["input_ids"]


def test_by_hand(tmp_path: Path) -> None:
    tokenizer = with_template(tmp_path, CHATML)
    assert (
        render_chat(tokenizer, TALK[:1]) == f"<|im_start|>user\n{TALK[0]['content']}<|im_end|>\n<|im_start|>assistant\n"
    )
    ids = encode_chat(tokenizer, TALK[:1])
    assert ids[0] == tokenizer.special["<|im_start|>"]
    assert tokenizer.decode(ids) == render_chat(tokenizer, TALK[:1])


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{{ raise_exception('no system role') }}", "no system role"),
        ("{% for m in messages %}", "cannot be used"),
        ("{{ messages[0].nothing.at.all }}", "cannot be used"),
        ("{{ 1 / 0 }}", "cannot be used"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "cannot be used"),
        ("{{ messages.append(1) }}", "cannot be used"),
        ("{% for i in range(10**9) %}x{% endfor %}", "cannot be used"),
        ("{% for i in range(9999) %}{{ 'x' * 9999 }}{% endfor %}", "more than 10,000,000 characters"),
        ("{% include '/etc/passwd' %}", "cannot be used"),
        ("{{ 'x' * 10**10 }}", "repeats something to more than 10,000,000"),
        ("{{ 10**10 * [0] }}", "repeats something to more than 10,000,000"),
        ("{{ 10**(10**9) }}", "a power has more than 10,000 bits"),
    ],
)
def test_what_a_template_cannot_do(template: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=said):
        render_chat(with_template(tmp_path, template), TALK)


def test_no_template() -> None:
    with pytest.raises(UserError, match="no chat template"):
        render_chat(ByteTokenizer(), TALK)
