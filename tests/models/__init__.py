"""A trained target and its EAGLE-3 drafts, small enough to ship: see README.md."""

from pathlib import Path

_HERE = Path(__file__).parent
TARGET = _HERE / "target"
DRAFT = _HERE / "draft"
DRAFT_SMALL_VOCAB = _HERE / "draft_small_vocab"
REPORT = _HERE / "report.json"
