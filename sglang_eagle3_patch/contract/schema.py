"""The contract of one release: every name of SGLang that we override, call or read, listed once."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from sglang_eagle3_patch.contract.paths import ContractError, chain, patches_root, read_toml

KINDS = ("function", "class", "attribute", "name")
USES = ("override", "call", "read")


@dataclass(frozen=True)
class Name:
    """One name of SGLang and what we hold it to.

    Attributes:
        symbol: `module:Qualified.name`.
        kind: `function`, `class`, `attribute` (of a class) or `name` (module level, imports included).
        use: `override` (parameters equal), `call` (takes what we pass, requires nothing else) or `read` (is there).
        why: what we need it for.
        parameters: of a function, as written: `x`, `x=1`, `*`, `/`, `*args`, `**kw`. For `call`, what follows `*` is
            passed by keyword.
    """

    symbol: str
    kind: str
    use: str
    why: str
    parameters: tuple[str, ...] | None = None

    @property
    def key(self) -> tuple[str, str]:
        """What identifies the entry when a later release replaces it."""
        return self.symbol, self.use

    @property
    def module(self) -> str:
        return self.symbol.partition(":")[0]

    @property
    def qualname(self) -> str:
        return self.symbol.partition(":")[2]

    @property
    def needs_parameters(self) -> bool:
        return self.kind == "function" and self.use != "read"


@dataclass(frozen=True)
class Contract:
    """All names of one release, its parents' included."""

    release: str
    names: tuple[Name, ...]


def load(release: str, *, complete: bool = True) -> Contract:
    """Read the contract of `release`: its parents' entries, replaced or dropped by its own.

    Args:
        release: a release that has a series.
        complete: demand parameters of every function that is called or overridden. `port` fills them in.

    Raises:
        ContractError: an entry that does not follow the schema, named.
    """
    names: dict[tuple[str, str], Name] = {}
    for step in chain(release):
        if not (patches_root() / f"v{step}" / "contract.toml").is_file():
            continue  # a release that changes nothing says nothing
        where = f"patches/v{step}/contract.toml"
        document = read_toml(step, "contract.toml")
        if unknown := set(document) - {"drop", "name"}:
            raise ContractError(f"{where}: unknown key {', '.join(sorted(unknown))}; known are drop and name")
        for symbol in document.get("drop", []):
            dropped = [key for key in names if key[0] == symbol]
            if not dropped:
                raise ContractError(f"{where}: drops {symbol}, which no parent lists")
            for key in dropped:
                del names[key]
        own: set[tuple[str, str]] = set()
        for entry in document.get("name", []):
            name = _name(entry, where)
            if name.key in own:
                raise ContractError(f"{where}: lists {name.symbol} ({name.use}) twice")
            own.add(name.key)
            names[name.key] = name
    for name in names.values():
        if complete and name.needs_parameters and name.parameters is None:
            raise ContractError(
                f"patches/v{release}/contract.toml: {name.symbol} has no parameters: "
                "fill them in with `sglang-eagle3-patch port TREE --write-contract FILE`"
            )
    return Contract(release, tuple(names.values()))


def _name(entry: dict[str, Any], where: str) -> Name:
    symbol = entry.get("symbol", "")
    if unknown := set(entry) - {field.name for field in fields(Name)}:
        raise ContractError(f"{where}: {symbol or 'an entry'} has an unknown key {', '.join(sorted(unknown))}")
    for key in ("symbol", "kind", "use", "why"):
        if not isinstance(entry.get(key), str) or not entry[key].strip():
            raise ContractError(f"{where}: {symbol or 'an entry'} lacks {key}")
    module, _, qualname = symbol.partition(":")
    if not module or not qualname:
        raise ContractError(f"{where}: {symbol} is not written as module:Qualified.name")
    name = Name(symbol, entry["kind"], entry["use"], entry["why"])
    if name.kind not in KINDS:
        raise ContractError(f"{where}: {symbol} has kind {name.kind!r}; known are {', '.join(KINDS)}")
    if name.use not in USES:
        raise ContractError(f"{where}: {symbol} has use {name.use!r}; known are {', '.join(USES)}")
    if name.kind == "attribute" and "." not in qualname:
        raise ContractError(f"{where}: {symbol} is an attribute, so it must be written as module:Class.attribute")
    if "parameters" in entry:
        parameters = entry["parameters"]
        if name.kind != "function" or not all(isinstance(parameter, str) for parameter in parameters):
            raise ContractError(f"{where}: parameters of {symbol} must be a list of strings, and it a function")
        name = replace(name, parameters=tuple(parameters))
    return name
