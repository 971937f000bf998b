"""The crash that started the project, and the faults behind it, on real SGLang: ``pytest -m crash``."""
