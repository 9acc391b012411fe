"""A small lesson with everything that a source can have. Its number is that of a real one: ``add`` is checked there."""

from pathlib import Path

from nanoeuler.lessons.source import Lesson, read_lesson

LESSON = """\
---
title: A small lesson
question: What is 1 + 1?
minutes: 5
picture: 02_small.svg
summary: You add.
---
Some words, and [a file](repo:README.md).

## A picture

![a square](picture:02_small.svg)

```python setup
import numpy as np
from numba import cuda
```

```text
## no heading
```

```python exercise add
@cuda.jit
def add(out, x, y):
    i = cuda.grid(1)  # blank 1: the number of this thread
    if i < out.size:  # blank 2: which threads may write?
        # blank 3: add
        out[i] = x[i] + y[i]
        # end
```

```python check
lesson.check("add", add)
```

```python
x = np.arange(5, dtype=np.float32)
out = np.zeros_like(x)
add[1, 32](out, x, x)
```

```python solved
assert out[3] == 6
```

## Count

[Lesson 2](lesson:2)

```python exercise count
threads = 64  # blank 1: how many threads?
```

```python check
lesson.check("count", threads)
```

<details><summary>Solution</summary>

{{solution add}}

{{solution count}}

</details>

```mutant add
no guard
- if i < out.size:
+ if True:
says: out of bounds
```

```mutant add
twice
- out[i] = x[i] + y[i]
+ for _ in range(2):
+     out[i] = x[i] + y[i]
+ out[i] += x[i]
says: wrong
```

```mutant add
only one block
- i = cuda.grid(1)
+ i = cuda.threadIdx.x
says: race between blocks
```

```mutant count
too few
- threads = 64
+ threads = 32
says: should be 64
```
"""
PICTURE = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9"><title>a square</title><rect width="9" height="9"/></svg>
"""


def written(folder: Path, text: str = LESSON) -> Lesson:
    """Write the lesson and its picture, and read it."""
    for name in ("source", "pictures"):
        (folder / name).mkdir(exist_ok=True)
    (folder / "pictures" / "02_small.svg").write_text(PICTURE, encoding="utf-8")
    path = folder / "source" / "02_small.md"
    path.write_text(text, encoding="utf-8")
    return read_lesson(path)
