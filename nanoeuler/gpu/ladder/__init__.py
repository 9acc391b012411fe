"""The ladders: simpler versions of four ops, one idea at a time, up to the one in use, which is the last of each.

All are checked alike (tests/gpu/ladder) and timed side by side (``python -m nanoeuler.bench ops --ladder``).
"""
