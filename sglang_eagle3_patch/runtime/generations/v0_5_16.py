"""SGLang 0.5.16 and 0.5.17: the event that ends a step's shared reads has an older name."""

from sglang_eagle3_patch.runtime.generations.v0_5_18 import UpdatingGeneration


class FastpathGeneration(UpdatingGeneration):
    """As the next one, but for the name of that event and of the runner it is on."""

    shared_read_runner: str | None = "war_fastpath_runner"
    shared_read_done = "war_fastpath_read_done_event"


GENERATION = FastpathGeneration()
