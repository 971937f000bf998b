"""SGLang 0.5.14 to 0.5.16: staged start-up, no grammar barrier."""

from sglang_eagle3_patch.runtime.generations.base import Generation


class StagedGeneration(Generation):
    """The event that ends a step's shared reads has an older name."""

    shared_read_runner = "war_fastpath_runner"
    shared_read_done = "war_fastpath_read_done_event"


GENERATION = StagedGeneration()
