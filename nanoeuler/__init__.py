"""nanoeuler: a language model trained with every gradient written by hand.

The op is the unit: :mod:`nanoeuler.cpu` holds each one in NumPy, forward beside backward, and
:mod:`nanoeuler.model` puts them together once. ``python -m nanoeuler.train`` trains, ``python -m
nanoeuler.gradcheck`` proves the gradients, ``python -m nanoeuler.generate`` samples.
"""

__version__ = "0.1.0"
