"""Empty: SGLang imports torchvision for images, and the registry's wheel does not load beside a CPU torch."""

from typing import Any

__version__ = "0.0.0"


def missing(name: str) -> Any:
    """A function that says, when called, that images are out of reach; dunder names are really absent."""
    if name.startswith("__"):
        raise AttributeError(name)

    def call(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"CPU reference: torchvision's {name} is not here; it serves text only")

    return call
