"""Python imports this at start-up in every process whose PYTHONPATH has this folder, SGLang's spawned ones too."""

from cpu_reference import after_import
from cpu_reference.hooks import HOOKS

after_import.install(HOOKS)
