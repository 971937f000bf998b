"""Python imports this at start-up in every process whose PYTHONPATH has this folder, SGLang's spawned ones too.

CPU_REFERENCE_HOOKS names a Python file with a table ``HOOKS`` of more hooks (module name to function): tests use it to
break a running SGLang on purpose, without editing its tree. With CPU_REFERENCE_GRAPHS set, SGLang runs its CUDA graph
runners, which the stand-in's graphs serve.
"""

import os
import runpy

from cpu_reference import after_import, graph_runners, hooks

tables = [hooks.HOOKS]
if os.environ.get("CPU_REFERENCE_GRAPHS"):
    tables.append(graph_runners.HOOKS)
if extra := os.environ.get("CPU_REFERENCE_HOOKS"):
    tables.append(runpy.run_path(extra)["HOOKS"])
after_import.install(*tables)
