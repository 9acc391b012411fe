"""From the word after ``--device`` to the op table behind it."""

from types import ModuleType

import nanoeuler.cpu
from nanoeuler.errors import UserError, nearest

DEVICES: dict[str, ModuleType] = {"cpu": nanoeuler.cpu}


def op_table(device: str) -> ModuleType:
    """Return a device's op table.

    Raises:
        UserError: there is no such device.
    """
    if device not in DEVICES:
        raise UserError(f"unknown device '{device}'{nearest(device, DEVICES)}; --device takes {', '.join(DEVICES)}")
    return DEVICES[device]
