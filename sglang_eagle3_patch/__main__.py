"""`python -m sglang_eagle3_patch`: the installer's command, for a Python whose scripts folder is not on PATH."""

from sglang_eagle3_patch.installer.cli import main

main()
