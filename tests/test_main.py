import subprocess
import sys
from importlib.util import find_spec

from nanoeuler.__main__ import COMMANDS


def test_every_command_listed_exists_and_the_list_is_printed():
    done = subprocess.run([sys.executable, "-m", "nanoeuler"], capture_output=True, text=True, check=True)
    for name in COMMANDS:
        assert f"python -m nanoeuler.{name} " in done.stdout
        assert find_spec(f"nanoeuler.{name}") is not None
