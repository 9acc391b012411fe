"""Makes the folder ``tests`` importable, so that tests in its subfolders share :mod:`oracle`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
