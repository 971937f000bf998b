"""Lets the tests of the stand-ins import them as SGLang's processes do."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent / "site"))
