"""Python imports this at start-up in every process whose PYTHONPATH has this folder, SGLang's spawned ones too.

CPU_REFERENCE_HOOKS names a Python file with a table ``HOOKS`` of more hooks (module name to function): tests use it to
break a running SGLang on purpose, without editing its tree.
"""

import os
import runpy

from cpu_reference import after_import
from cpu_reference.hooks import HOOKS

extra = os.environ.get("CPU_REFERENCE_HOOKS")
after_import.install(HOOKS, runpy.run_path(extra)["HOOKS"] if extra else {})
