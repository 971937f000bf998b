"""Any name imports; calling it says why it is not there."""

from torchvision import missing as __getattr__

__all__ = ["__getattr__"]
