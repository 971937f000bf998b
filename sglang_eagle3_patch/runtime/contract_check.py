"""Holds the contract against the classes that this server runs, before the gated worker is built (C2, C3)."""

from __future__ import annotations

from sglang_eagle3_patch.contract import live, schema
from sglang_eagle3_patch.contract.paths import ContractError, generation_of


def demand(series: str) -> str:
    """Return the runtime's room for this SGLang.

    The source was checked when the patch was applied. Since then the tree may have been edited, and a plugin may have
    put a class of its own in the place of SGLang's.

    Args:
        series: the release whose series was applied.

    Raises:
        ContractError: a name is not as the contract says; every one of them is named, and the server does not start.
    """
    if mismatches := live.check(schema.load(series)):
        raise ContractError(
            f"EAGLE-3 batch gate: this SGLang is not what series v{series} was made for: "
            f"{'; '.join(map(str, mismatches))}. Run sglang-eagle3-patch check, or start with "
            "--speculative-disable-batch-threshold 0."
        )
    return generation_of(series)
