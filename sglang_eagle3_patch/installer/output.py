"""How a command speaks: text for people, one JSON document with `--json`, refusals as one line and exit status 2."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

import typer
from rich.console import Console

from sglang_eagle3_patch.contract.paths import ContractError
from sglang_eagle3_patch.installer.refusal import Refusal

REFUSED = 2


class Output:
    """Where one command's results go.

    Args:
        command: its name.
        as_json: print one JSON document, and nothing else, on stdout.
    """

    def __init__(self, command: str, as_json: bool) -> None:
        self.command = command
        self.as_json = as_json
        self.warnings: list[str] = []
        # soft_wrap: a path that is broken over two lines can't be copied
        self.console = Console(soft_wrap=True, highlight=False)
        self.errors = Console(stderr=True, soft_wrap=True, highlight=False)

    def say(self, text: str) -> None:
        """Print a line for people."""
        if not self.as_json:
            self.console.print(text, markup=False)

    def warn(self, text: str) -> None:
        """Print a warning, or keep it for the document."""
        self.warnings.append(text)
        if not self.as_json:
            self.errors.print(f"warning: {text}", markup=False, style="yellow")

    def report(self, report: Mapping[str, Any]) -> None:
        """Print a report section by section."""
        if self.as_json:
            return
        for section, content in report.items():
            if section == "findings":
                continue
            self.console.rule(section, align="left")
            self._print(content, "")
        self.console.rule("findings", align="left")
        for finding in report["findings"] or ["nothing wrong found"]:
            self.console.print(f"- {finding}", markup=False, style="yellow" if report["findings"] else "green")

    def _print(self, content: object, indent: str) -> None:
        if not isinstance(content, Mapping):
            self.say(f"{indent}{content}")
            return
        for key, value in content.items():
            if isinstance(value, Mapping):
                self.say(f"{indent}{key}:")
                self._print(value, indent + "  ")
            else:
                text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else value
                self.say(f"{indent}{key}: {'-' if text is None or text == '' else text}")

    def result(self, **document: Any) -> None:
        """Print the JSON document."""
        if self.as_json:
            self._document({"command": self.command, "ok": True, **document, "warnings": self.warnings})

    def refuse(self, sentence: str, reasons: tuple[str, ...]) -> NoReturn:
        """Say no, and end with status 2."""
        if self.as_json:
            self._document({"command": self.command, "ok": False, "error": sentence, "reasons": list(reasons)})
        else:
            self.errors.print(f"refused: {' '.join(sentence.split())}", markup=False, style="red")
        raise typer.Exit(REFUSED)

    def _document(self, document: dict[str, Any]) -> None:
        sys.stdout.write(json.dumps(document, indent=2, default=str) + "\n")


@contextmanager
def speaking(command: str, as_json: bool) -> Iterator[Output]:
    """Run a command's body; a refusal ends it with one line and status 2."""
    output = Output(command, as_json)
    try:
        yield output
    except Refusal as refusal:
        output.refuse(str(refusal), refusal.reasons)
    except (ContractError, PermissionError) as error:
        output.refuse(str(error), ())
