"""From ``--device`` to an op table."""

import pytest

import nanoeuler.cpu
from nanoeuler.device import DEVICES, op_table
from nanoeuler.errors import UserError


def test_cpu_is_the_numpy_op_table() -> None:
    assert op_table("cpu") is nanoeuler.cpu


@pytest.mark.parametrize(("word", "hint"), [("cpuu", " (did you mean 'cpu'?)"), ("CPU ", ""), ("", ""), ("tpx", "")])
def test_a_misspelt_device_names_what_there_is(word: str, hint: str) -> None:
    with pytest.raises(UserError) as caught:
        op_table(word)
    message = str(caught.value)
    assert message.startswith(f"unknown device '{word}'{hint}")
    for device in DEVICES:
        assert device in message
