"""One thin room per SGLang generation: what differs between releases, and nothing else."""
