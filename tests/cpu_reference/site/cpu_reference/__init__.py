"""Plain-PyTorch stand-ins for the device kernels that SGLang's EAGLE-3 path calls.

Scheduling, KV allocation, drafting, accept bookkeeping, sampling and the overlap machinery stay SGLang's own.
docs/cpu-reference.md says what is replaced, why, and what such a run cannot show.
"""
