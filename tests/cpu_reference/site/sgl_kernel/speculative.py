"""Imported by early releases, never called on this path."""

from sgl_kernel import __getattr__ as __getattr__
