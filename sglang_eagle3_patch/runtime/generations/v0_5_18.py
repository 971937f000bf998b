"""SGLang 0.5.18 to 0.5.20: the worker has a method for each way in which weights arrive."""

from sglang_eagle3_patch.runtime.generations.base import Generation


class UpdatingGeneration(Generation):
    """As the newest shape, but for the names of those methods."""

    weight_updates: tuple[str, ...] = (
        "update_weights_from_disk",
        "update_weights_from_ipc",
        "update_weights_from_tensor",
    )


GENERATION = UpdatingGeneration()
