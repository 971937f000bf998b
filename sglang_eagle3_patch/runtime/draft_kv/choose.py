"""Which K/V-only write, if any, equals a draft extend for a draft."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sglang_eagle3_patch.runtime.draft_kv.base import DraftKV, NotExact
from sglang_eagle3_patch.runtime.draft_kv.llama import LlamaDraftKV
from sglang_eagle3_patch.runtime.draft_kv.mla import MLADraftKV

if TYPE_CHECKING:
    from sglang_eagle3_patch.runtime.generations.base import Generation

WRITES: dict[str, type[DraftKV]] = {
    "LlamaForCausalLMEagle3": LlamaDraftKV,
    "Eagle3DeepseekV2ForCausalLM": MLADraftKV,
}


def draft_kv_for(draft_runner: Any, generation: Generation) -> DraftKV:
    """The K/V-only write for the draft that ``draft_runner`` (SGLang's ``ModelRunner``) holds.

    Raises:
        NotExact: there is none.
    """
    draft = type(draft_runner.model).__name__
    if draft not in WRITES:
        raise NotExact(f"the draft is a {draft}, whose keys and values can't be computed on their own")
    write = WRITES[draft](draft_runner, generation)
    write.demand_exact()
    return write
