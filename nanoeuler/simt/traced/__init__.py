"""The traced executor: runs a kernel as the checked one does, and keeps what each thread did, line by line.

``execute.trace`` runs, ``translate`` and ``recorder`` write down, ``result.Trace`` holds what happened. From it come
numbers (``numbers``, ``report``), pictures (``pictures``), a stepper (``stepper``) and a page of all these (``page``).
"""

from nanoeuler.simt.traced.cards import CARDS
from nanoeuler.simt.traced.execute import trace
from nanoeuler.simt.traced.result import Trace
from nanoeuler.simt.traced.stepper import Stepper, step

__all__ = ["CARDS", "Stepper", "Trace", "step", "trace"]
