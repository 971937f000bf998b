"""The command `sglang-eagle3-patch`."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from sglang_eagle3_patch import __version__
from sglang_eagle3_patch.contract import schema
from sglang_eagle3_patch.installer import manifest as records
from sglang_eagle3_patch.installer import transaction
from sglang_eagle3_patch.installer.diff import unified
from sglang_eagle3_patch.installer.doctor import examine
from sglang_eagle3_patch.installer.environment import import_warnings
from sglang_eagle3_patch.installer.new_contract import contract_for
from sglang_eagle3_patch.installer.output import speaking
from sglang_eagle3_patch.installer.plan import Plan, make_plan
from sglang_eagle3_patch.installer.port import Verdict, series_for
from sglang_eagle3_patch.installer.port import port as try_port
from sglang_eagle3_patch.installer.tree import Tree, open_tree, read_release

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Put the EAGLE-3 batch gate into an SGLang tree, and take it out again.",
)
TreeArgument = Annotated[
    Path | None,
    typer.Argument(
        metavar="[TREE]",
        show_default=False,
        help="An SGLang checkout, site-packages or the sglang package folder; left out, the importable sglang.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@app.command()
def apply(tree: TreeArgument = None, as_json: Json = False) -> None:
    """Patch the tree: all of it, or nothing."""
    with speaking("apply", as_json) as output:
        found = open_tree(tree)
        written, manifest = transaction.apply(found)
        for warning in import_warnings(found, [entry.file for entry in manifest.entries]):
            output.warn(warning)
        files = [entry.file for entry in manifest.entries]
        if written:
            output.say(f"applied series v{manifest.series} to SGLang {manifest.release} in {found.package}:")
            for file in files:
                output.say(f"  {file}")
        else:
            output.say(f"already applied: series v{manifest.series} in {found.package}")
        output.result(
            tree=found.package, release=manifest.release, series=manifest.series, files=files, changed=written
        )


@app.command()
def revert(tree: TreeArgument = None, as_json: Json = False) -> None:
    """Put every original byte back."""
    with speaking("revert", as_json) as output:
        found = open_tree(tree)
        files = transaction.revert(found)
        output.say(f"reverted {len(files)} files in {found.package}" if files else f"not patched: {found.package}")
        output.result(tree=found.package, files=files, changed=bool(files))


@app.command()
def status(tree: TreeArgument = None, as_json: Json = False) -> None:
    """Say whether the tree is patched: clean, applied, half (a crash; run `revert`) or edited since."""
    with speaking("status", as_json) as output:
        found = open_tree(tree)
        release = read_release(found)
        state, manifest = records.read(found)
        output.say(f"{state}: SGLang {release} in {found.package}")
        files: dict[str, str] = {}
        if manifest:
            now = manifest.found(found)
            words = {entry.file: {entry.before: "original", entry.after: "patched"} for entry in manifest.entries}
            files = {file: words[file].get(now[file], "edited" if now[file] else "missing") for file in now}
            output.say(f"  series v{manifest.series}, written by sglang-eagle3-patch {manifest.tool}")
            for file, word in files.items():
                output.say(f"  {word:8} {file}")
        series = manifest.series if manifest else None
        output.result(tree=found.package, release=release, state=state, series=series, files=files)


@app.command()
def diff(tree: TreeArgument = None, as_json: Json = False) -> None:
    """Print what the series changes as a unified diff for `git apply`, from the checkout's root or site-packages."""
    with speaking("diff", as_json) as output:
        found = open_tree(tree)
        plan = _plan(found).demand()
        text = unified(plan.changes, found.diff_prefix)
        if not as_json:
            sys.stdout.flush()
            sys.stdout.buffer.write(text)
        output.result(tree=found.package, series=plan.series.release, diff=text.decode(errors="replace"))


@app.command()
def check(tree: TreeArgument = None, as_json: Json = False) -> None:
    """Hold the contract and the series against the tree; write nothing."""
    with speaking("check", as_json) as output:
        found = open_tree(tree)
        plan = _plan(found).demand()
        names, edits = len(schema.load(plan.series.release).names), len(plan.series.edits)
        output.say(
            f"SGLang {plan.release} fits series v{plan.series.release}: {names} names and {edits} edits hold in "
            f"{found.package}"
        )
        output.result(tree=found.package, release=plan.release, series=plan.series.release, names=names, edits=edits)


@app.command()
def doctor(
    tree: TreeArgument = None,
    log: Annotated[Path | None, typer.Option(help="A server's log to explain.", exists=True, dir_okay=False)] = None,
    as_json: Json = False,
) -> None:
    """Print what a bug report needs, and what is wrong; status 1 if something is."""
    with speaking("doctor", as_json) as output:
        report = examine(tree, log)
        output.report(report)
        output.result(**report)
    if report["findings"]:
        raise typer.Exit(1)


@app.command()
def port(
    tree: TreeArgument = None,
    write_contract: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the contract of this tree, signatures filled in.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Try the nearest older series on a tree of another release: what holds, changed, moved or is gone."""
    with speaking("port", as_json) as output:
        found = open_tree(tree)
        release = read_release(found)
        name = series_for(release)
        _, manifest = records.read(found)
        originals = manifest.originals() if manifest else {}
        findings = try_port(found, name, originals)
        held = sum(finding.verdict is Verdict.HOLDS for finding in findings)
        output.say(f"series v{name} on SGLang {release}: {held} of {len(findings)} hold")
        for finding in findings:
            if finding.verdict is not Verdict.HOLDS:
                near = f" -> {finding.candidate}" if finding.candidate else ""
                output.say(f"  {finding.verdict:8} {finding.kind} {finding.entry}: {finding.detail}{near}")
        if write_contract:
            own = release.partition("+")[0] == name
            write_contract.write_text(contract_for(found, name, own, originals), encoding="utf-8")
            output.say(f"wrote {write_contract}")
        output.result(tree=found.package, release=release, series=name, findings=[asdict(f) for f in findings])


@app.command()
def version(as_json: Json = False) -> None:
    """Print the version of this tool."""
    with speaking("version", as_json) as output:
        output.say(__version__)
        output.result(version=__version__)


def _plan(tree: Tree) -> Plan:
    _, manifest = records.read(tree)
    return make_plan(tree, manifest.originals() if manifest else {})


def main() -> None:
    """Entry point."""
    app()
