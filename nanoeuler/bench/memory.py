"""Peak memory of one contender: a process of its own that takes a few steps and says how large it grew.

A process's peak never falls, so contenders that share one cannot be told apart. The peak is that of the whole
process, interpreter and libraries and, for torch.compile, the compiler included: what a machine must have to run it.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from nanoeuler.bench.contender import OURS, Contender, build
from nanoeuler.bench.workload import workload_from_dict

#: Steps after which everything has been allocated: AdamW's moments in the first, what is kept for reuse in the second.
STEPS = 3


def measure_peak(contender: Contender) -> dict[str, int] | None:
    """Return the bytes of a process that trains as the contender does, or None where that cannot be measured.

    ``libraries`` is the peak once all is imported, ``peak`` that of the whole run.
    """
    task = {"name": contender.name, "optimizer": contender.optimizer, **contender.workload.to_dict()}
    command = [sys.executable, "-m", "nanoeuler.bench.memory", json.dumps(task)]
    child = subprocess.run(command, capture_output=True, text=True, check=False)
    return json.loads(child.stdout.splitlines()[-1]) if child.returncode == 0 else None


def main(arguments: list[str]) -> int:
    """Be that process: take the steps, print the two sizes; exit 1 where the system does not tell them."""
    task: dict[str, Any] = json.loads(arguments[0])
    if task["name"] != OURS:
        import torch  # noqa: F401
    libraries = peak_bytes()
    contender = build(task["name"], workload_from_dict(task), task["optimizer"])
    with contender.turn():
        for i in range(STEPS):
            contender.step(i)
    peak = peak_bytes()
    if peak is None:
        return 1
    print(json.dumps({"libraries": libraries, "peak": peak}))
    return 0


def peak_bytes(process: int | str = "self") -> int | None:
    """Return the largest resident size a process has had, or None where the system does not tell.

    Linux: VmHWM. Not ``ru_maxrss``, in which a child starts with its parent's peak.
    """
    status = Path(f"/proc/{process}/status")
    if status.exists():
        lines = [line.split() for line in status.read_text().splitlines()]
        return next((int(line[1]) * 1024 for line in lines if line[0] == "VmHWM:"), None)
    if sys.platform == "darwin" and process == "self":
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # in bytes, on macOS alone
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
