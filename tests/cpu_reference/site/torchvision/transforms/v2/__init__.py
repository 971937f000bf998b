"""What transformers takes from here at import time."""

from torchvision.transforms.v2 import functional

__all__ = ["functional"]
