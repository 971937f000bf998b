"""Runs inside SGLang's processes (CPU_REFERENCE_HOOKS): breaks start-up at one point, reads what is left of a worker.

PLANT_POINT names the method that fails, ``module:Class.method``. Just before it raises, every attribute that
PLANT_ATTRIBUTES lists is read off each gated worker whose construction has begun, and PLANT_REPORT gets the result as
JSON: one object a worker, from attribute to its value as text, or null where reading it raised AttributeError.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

_WORKER = "sglang_eagle3_patch.runtime.worker"
_module, _, _qualname = os.environ["PLANT_POINT"].partition(":")
_begun: list[Any] = []


def _remember(module: Any) -> None:
    """Keep every gated worker from its first moment, as whatever keeps a half-built object would."""
    construct = module.GatedWorkerMixin.__init__

    def begin(self: Any, *args: Any, **kwargs: Any) -> None:
        _begun.append(self)
        construct(self, *args, **kwargs)

    module.GatedWorkerMixin.__init__ = begin


def _plant(module: Any) -> None:
    if module.__name__ == _WORKER:
        _remember(module)
    owner, _, name = _qualname.partition(".")
    original: Callable[..., Any] = getattr(getattr(module, owner), name)

    def fail(*args: Any, **kwargs: Any) -> Any:
        if args and not getattr(args[0], "is_draft_worker", True):
            return original(*args, **kwargs)  # the target's, which is built before there is a worker of ours
        _report()
        raise LookupError(f"planted in {_qualname}")

    setattr(getattr(module, owner), name, fail)


def _report() -> None:
    names = os.environ["PLANT_ATTRIBUTES"].split(",")
    found = [{name: _read(worker, name) for name in names} for worker in _begun]
    Path(os.environ["PLANT_REPORT"]).write_text(json.dumps(found))


def _read(worker: Any, name: str) -> str | None:
    try:
        return repr(getattr(worker, name))
    except AttributeError:
        return None


HOOKS = {_WORKER: _remember, _module: _plant}
