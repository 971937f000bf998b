"""What SGLang and transformers take from here at import time."""

from enum import Enum

from torchvision.transforms import functional

__all__ = ["InterpolationMode", "functional"]


class InterpolationMode(Enum):
    """The names that are looked up."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"
