"""Requests that live in plain steps only are served as without speculation, also where upstream's EAGLE differs.

- Sampling: a verify draws by other rules than the ordinary sampler, so a seed gives other tokens. A plain step draws
  with the ordinary sampler.
- Penalties: under EAGLE upstream applies a 'relaxed version', its words: all tokens of a verify see the penalties of
  the step's start, and of each accepted run only the last token is counted. A plain step has one token, so its
  penalties are exact. Across a flip they are upstream's: what a verify left uncounted stays uncounted.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Setup
from tests.e2e.engine import Run, run_engine
from tests.e2e.workload import Request, greedy, prompt

pytestmark = pytest.mark.e2e
N = 4
TOKENS = 40

# SGLang draws by a request's seed only in deterministic mode, which is for GPUs: its kernels and its list of backends.
DETERMINISTIC = {"enable_deterministic_inference": True}
ALLOW_CPU = """
def allow(server_args):
    server_args.DETERMINISTIC_ATTENTION_BACKEND_CHOICES.append("intel_amx")

def keep_kernels(batch_invariant_ops):
    batch_invariant_ops.enable_batch_invariant_mode = lambda: None

def hash_in_torch(murmur_hash):
    import torch

    def murmur_hash32(seed, positions, columns):
        generators = [torch.Generator().manual_seed(int(s) * 10**6 + int(p)) for s, p in zip(seed, positions)]
        return torch.stack([torch.randint(2**32, columns.shape, generator=g) for g in generators])

    murmur_hash.murmur_hash32 = murmur_hash32

HOOKS = {
    "sglang.srt.server_args": allow,
    "sglang.srt.batch_invariant_ops": keep_kernels,
    "sglang.kernels.ops.sampling.murmur_hash": hash_in_torch,
}
"""

# All that sample ask for a top-k or top-p: upstream gives its noise to tokens in sorted order as soon as one request of
# a batch asks, in vocabulary order otherwise, so without it a seed's tokens depend on which requests prefill together.
SAMPLED: list[dict[str, Any]] = [
    {"temperature": 1.0, "sampling_seed": 11, "top_k": 200},
    {"temperature": 1.0, "sampling_seed": 12, "top_k": 20},
    {"temperature": 0.7, "sampling_seed": 13, "top_p": 0.8},
]
PENALISED: list[dict[str, Any]] = [
    {"frequency_penalty": 0.7},
    {"presence_penalty": 1.1},
    {"repetition_penalty": 1.5},
    {"frequency_penalty": 0.4, "temperature": 0.8, "sampling_seed": 15, "top_k": 200},
    {"min_new_tokens": 25, "stop_token_ids": list(range(40, 200)), "ignore_eos": False},
]


def requests(sampling: list[dict[str, Any]]) -> list[Request]:
    """Requests that come when N + 1 others run already, and are gone before these end."""
    lasting = [Request(prompt(5 + i, seed=900 + i), greedy(400)) for i in range(N + 1)]
    all_run = Request(prompt(5, seed=910), greedy(20))
    tested = [
        Request(prompt(8 + 2 * i, seed=920 + i), greedy(TOKENS) | more, after=(N + 1,))
        for i, more in enumerate(sampling)
    ]
    return [*lasting, all_run, *tested]


def outputs(run: Run) -> list[list[int]]:
    """The outputs of those requests, after a look at whether they met no speculative step."""
    answers = run.answers[N + 2 :]
    assert [answer.meta_info.get("spec_verify_ct", 0) for answer in answers] == [0] * len(answers)
    return [answer.output_ids for answer in answers]


@pytest.fixture(scope="module")
def variables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    hooks: Path = tmp_path_factory.mktemp("hooks") / "allow_cpu.py"
    hooks.write_text(ALLOW_CPU)
    return {"CPU_REFERENCE_HOOKS": str(hooks)}


@pytest.fixture(scope="module")
def plain(setup: Setup, variables: dict[str, str]) -> list[list[int]]:
    # Overlap off: with it, upstream's penalties miss or repeat a token whenever a prefill comes between two steps.
    args = setup.plain_args(**DETERMINISTIC, disable_overlap_schedule=True)
    return outputs(run_engine(setup.upstream, args, requests(SAMPLED + PENALISED), variables=variables))


def test_sampling_equals_no_speculation(setup: Setup, plain: list[list[int]], variables: dict[str, str]) -> None:
    run = run_engine(setup.patched, setup.gated_args(N, **DETERMINISTIC), requests(SAMPLED), variables=variables)
    assert outputs(run) == plain[: len(SAMPLED)]


def test_penalties_equal_no_speculation(setup: Setup, plain: list[list[int]], variables: dict[str, str]) -> None:
    args = setup.gated_args(N, **DETERMINISTIC, disable_overlap_schedule=True)
    run = run_engine(setup.patched, args, requests(SAMPLED + PENALISED), variables=variables)
    assert outputs(run) == plain
    stops, held_off = set(PENALISED[-1]["stop_token_ids"]), PENALISED[-1]["min_new_tokens"]
    assert not stops.intersection(plain[-1][:held_off])
    assert plain[-1][-1] in stops


def test_the_rules_matter(plain: list[list[int]]) -> None:
    """Every one of these rules changes the output, or equality would say nothing."""
    assert len({tuple(output) for output in plain}) == len(plain)
    assert all(len(set(output)) > 3 for output in plain)
