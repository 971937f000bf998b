"""The half that a patched SGLang imports. It imports nothing at package level, so that a hook costs one module."""
