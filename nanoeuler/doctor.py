"""What this machine has for nanoeuler, what is wrong with it, and the command that mends it.

``python -m nanoeuler.doctor`` looks at Python and its packages, the CPU, the CUDA toolkit, the driver and the GPUs, and
ends with a line for each device: works, or why not. ``--json`` prints the same for programs.

The exit code is 0 if everything that training on the CPU needs is right, else 1: that there is no GPU is no failure.

It is there for machines on which something is broken, so it relies on nothing but the standard library. All that could
raise, hang or take its process with it (an import, a driver) is done by other processes, one for each group of items,
side by side. What one of them dies of becomes the line of the item that it was at, and another one goes on with the
rest.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import nanoeuler
from nanoeuler.errors import run_command
from nanoeuler.system.probes import Line, failed, probes, run_probe

#: Seconds for a process to look at its items, and for all processes of one group.
PATIENCE, DEADLINE = 45.0, 60.0
DEVICES = ("cpu", "sim", "gpu")
STYLES = {"ok": "green", "note": "yellow", "missing": "red", "wrong": "bold red"}

Lines = dict[str, list[Line]]


def examine() -> dict[str, Any]:
    """Return what ``--json`` prints: ``items``, a list of :class:`Line`, and ``devices``, why each does not work."""
    groups = [list(group) for group in probes().values()]
    found: Lines = {}
    children = [start(names) for names in groups]
    try:
        for names, child in zip(groups, children, strict=True):
            found |= collect(names, child)
    finally:
        for child in children:
            if child is not None and child.poll() is None:
                child.kill()
    items = [line for names in groups for name in names if not name.startswith("--") for line in found[name]]
    return {
        "nanoeuler": nanoeuler.__version__,
        "items": [asdict(line) for line in items],
        "devices": {device: verdict(device, found) for device in DEVICES},
    }


def start(names: list[str]) -> "subprocess.Popen[bytes] | None":
    """Start a process that looks at items; None where the system starts no more, or nobody knows this interpreter."""
    command = [sys.executable, "-m", "nanoeuler.doctor", "--probe", *names]
    try:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except (OSError, ValueError):
        return None


def collect(names: list[str], child: "subprocess.Popen[bytes] | None") -> Lines:
    """Return the lines of all these items: those of the process, and after its death those of the next ones."""
    found: Lines = {}
    end, rest = time.monotonic() + DEADLINE, names
    while rest:
        if child is None:
            return found | {name: run_probe(name) for name in rest}
        done, death = wait(child, max(1.0, min(PATIENCE, end - time.monotonic())))
        found |= done
        rest = [name for name in rest if name not in done]
        if rest:
            found[rest[0]] = [failed(rest[0], death)]
            rest = rest[1:]
        if rest and time.monotonic() > end:
            return found | {name: [failed(name, "not looked at: what comes before it took too long")] for name in rest}
        child = start(rest) if rest else None
    return found


def wait(child: "subprocess.Popen[bytes]", seconds: float) -> tuple[Lines, str]:
    """Return the lines that a process gives, and what it died of, should there be some missing."""
    try:
        output, _ = child.communicate(timeout=seconds)
        death = cause(child.returncode)
    except subprocess.TimeoutExpired:
        child.kill()
        try:
            output, _ = child.communicate(timeout=5)
        except subprocess.TimeoutExpired as stuck:  # inside the kernel, where not even this ends it
            output = stuck.output or b""
        death = f"no answer within {seconds:.0f} seconds"
    found: Lines = {}
    for text in output.splitlines():
        try:
            name, lines = json.loads(text)
            found[name] = [Line(**line) for line in lines]
        except (ValueError, TypeError):  # cut off in the middle
            continue
    return found, death


def cause(code: int) -> str:
    """Return how a process ended, for people.

    >>> cause(3)
    'the process that looked at it ended with code 3'
    """
    if code >= 0:
        return f"the process that looked at it ended with code {code if code < 256 else hex(code)}"
    try:
        return f"the process that looked at it crashed ({signal.Signals(-code).name})"
    except ValueError:
        return f"the process that looked at it crashed (signal {-code})"


def answer(names: Iterable[str]) -> None:
    """Look at items, in the process that :func:`start` started, and print each one's lines as soon as they are there.

    Whatever a package prints meanwhile goes elsewhere.
    """
    with os.fdopen(os.dup(1), "w", encoding="ascii") as output:
        os.dup2(2, 1)
        for name in names:
            print(json.dumps([name, [asdict(line) for line in run_probe(name)]]), file=output, flush=True)


def verdict(device: str, found: Lines) -> dict[str, Any]:
    """Return whether a device works, and if not why, and what to do."""
    names = [name for name in probes()["cpu"] if name != "PyTorch"]
    if device == "sim":
        names += ["numba", "llvmlite", "--device sim"]
    if device == "gpu":  # first the hardware: with none, nothing else needs to be mended
        names = ["--device gpu", *names]
    for line in (line for name in names for line in found[name]):
        if line.verdict in ("missing", "wrong"):
            named = line.item in line.why or line.item.startswith("--")
            return {"works": False, "why": line.why if named else f"{line.item}: {line.why}", "mend": line.mend}
    return {"works": True, "why": "", "mend": ""}


def print_report(report: dict[str, Any]) -> None:
    """Print a table of the items, and a line for each device."""
    if any(line["item"] == "rich" and line["verdict"] != "ok" for line in report["items"]):
        print_plainly(report)
        return
    try:
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except Exception:
        print_plainly(report)
        return
    table = Table(box=box.SIMPLE, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for line in report["items"]:
        style = STYLES[line["verdict"]]
        table.add_row(Text(line["item"]), Text(line["verdict"], style), Text(printable("\n".join(_told(line)))))
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
    console.print(table)
    print_devices(report)


def print_plainly(report: dict[str, Any]) -> None:
    """Print the same where rich is missing or broken."""
    for line in report["items"]:
        told = _told(line) or [""]
        print(printable(f"{line['item']:<20} {line['verdict']:<8} {told[0]}"))
        for more in told[1:]:
            print(printable(f"{'':<29} {more}"))
    print()
    print_devices(report)


def print_devices(report: dict[str, Any]) -> None:
    """Print a line for each device."""
    for device, said in report["devices"].items():
        print(printable(f"--device {device}: " + ("works" if said["works"] else f"{said['why']}: {said['mend']}")))


def _told(line: dict[str, str]) -> list[str]:
    mend = f"what to do: {line['mend']}" if line["mend"] else ""
    return [text for text in (line["found"], line["why"], mend) if text]


def printable(text: str) -> str:
    """Return text with what stdout cannot show, and what a terminal would obey, as escapes."""
    encoding = sys.stdout.encoding or "ascii"
    plain = "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)
    return plain.encode(encoding, "backslashreplace").decode(encoding)


def main(arguments: list[str]) -> int:
    """Look at everything and print it; return 0 if training on the CPU has all that it needs, else 1."""
    parser = argparse.ArgumentParser(
        prog="python -m nanoeuler.doctor",
        description="What this machine has for nanoeuler, what is wrong, and the command that mends it.",
        epilog="The exit code is 0 if everything that training on the CPU needs is right, else 1.",
        allow_abbrev=False,
    )
    parser.add_argument("--json", action="store_true", help="print the same as JSON, and nothing else")
    parser.add_argument("--probe", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.probe:
        answer(options.probe)
        return 0
    report = examine()
    if options.json:
        print(json.dumps(report, indent=2))
    else:
        print_report(report)
    return 0 if report["devices"]["cpu"]["works"] else 1


if __name__ == "__main__":
    raise SystemExit(run_command(main))
