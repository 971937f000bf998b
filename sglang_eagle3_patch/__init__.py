"""EAGLE-3 batch gate for SGLang: speculate while the batch is small, decode plainly when it is large."""

__version__ = "0.1.0"
