"""SGLang 0.5.21 to 0.5.23: the newest shape as it stands."""

from sglang_eagle3_patch.runtime.generations.base import Generation

GENERATION = Generation()
