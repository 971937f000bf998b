"""SGLang 0.5.14 to 0.5.16: staged start-up, no grammar barrier."""

from sglang_eagle3_patch.runtime.generations.base import Generation

GENERATION = Generation()
