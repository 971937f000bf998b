"""Our part of a step over tensors that have no data: reading one on the CPU fails, and copies to the device are listed.

Run in a process with SGLang's classes on PYTHONPATH; prints the operations that would make CPU and GPU wait for each
other as JSON. The models are stand-ins; everything between them is the gate's own code.
"""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from sglang_eagle3_patch.runtime.draft_kv.llama import LlamaDraftKV
from sglang_eagle3_patch.runtime.draft_kv.mla import MLADraftKV
from sglang_eagle3_patch.runtime.draft_sync import DraftSync
from sglang_eagle3_patch.runtime.generations.base import Generation
from sglang_eagle3_patch.runtime.worker import GatedWorkerMixin

DEVICE = "meta"
ROWS, LENGTH, BATCH, HIDDEN, VOCAB, WINDOW = 16, 64, 3, 8, 32, 4
pinned: list[Tensor] = []


def pin(tensor: Tensor) -> Tensor:
    pinned.append(tensor)
    return tensor


def device_tensor(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.zeros(shape, dtype=dtype, device=DEVICE)


class Waits(TorchDispatchMode):  # type: ignore[misc]  # torch says nothing about it
    """Lists what moves numbers between CPU and device and is not an asynchronous copy from pinned memory."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        # A tensor without dimensions on the CPU is a number in the kernel's arguments.
        on_cpu = [tensor for tensor in tensors if tensor.device.type == "cpu" and tensor.dim()]
        to = torch.device(kwargs.get("device") or "cpu").type
        on_device = any(tensor.device.type == DEVICE for tensor in tensors)
        if on_device and "device" in kwargs and to != DEVICE:
            self.found.append(str(function))
        moves = on_cpu and (on_device or to == DEVICE)
        asynchronous = kwargs.get("non_blocking") and all(any(t is p for p in pinned) for t in on_cpu)
        if moves and not asynchronous:
            self.found.append(str(function))
        return function(*args, **kwargs)


class Target(Generation):
    """The target's forward passes, and the draft extend's, are SGLang's: here they do nothing."""

    def decode(self, worker: Any, step: Any) -> tuple[Any, Any]:
        logits = SimpleNamespace(hidden_states=device_tensor(BATCH, 3 * HIDDEN), next_token_logprobs=None)
        result = SimpleNamespace(logits_output=logits, can_run_cuda_graph=True)
        return SimpleNamespace(), SimpleNamespace(**vars(result), routed_experts_output=None, indexer_topk_output=None)

    def draft_context(self, worker: Any) -> Any:
        return torch.no_grad()

    def write_location(self, slots: Tensor) -> Any:
        return slots


class Upstream:
    """SGLang's worker around the gate."""

    speculative_num_draft_tokens = WINDOW

    def __init__(self) -> None:
        self.req_to_token_pool = SimpleNamespace(req_to_token=device_tensor(ROWS, LENGTH, dtype=torch.int32))
        runner = SimpleNamespace(sample=lambda logits, batch: device_tensor(BATCH, dtype=torch.int32))
        self.target_worker = SimpleNamespace(model_runner=runner)
        self.server_args = SimpleNamespace(enable_hierarchical_cache=False)
        self.draft_worker = SimpleNamespace(plan_stream=None, _draft_extend_for_decode=lambda step, accepted: None)

    def forward_batch_generation(self, batch: Any) -> Any:
        logits = SimpleNamespace(hidden_states=device_tensor(sum(batch.extend_lens), 3 * HIDDEN))
        return SimpleNamespace(logits_output=logits)


class Worker(GatedWorkerMixin, Upstream):
    generation = Target()


def projection(inputs: int, outputs: int) -> nn.Module:
    layer = nn.Linear(inputs, outputs, bias=False, device=DEVICE)
    layer.quant_method = type("UnquantizedLinearMethod", (), {})()
    return layer


def norm(width: int) -> nn.Module:
    return nn.LayerNorm(width, device=DEVICE)


def rotate(positions: Tensor, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    return q * positions.view(-1, *[1] * (q.dim() - 1)), k * positions.view(-1, *[1] * (k.dim() - 1))


def llama_draft() -> Any:
    radix = SimpleNamespace(k_scale=None, tp_k_head_num=2, qk_head_dim=4, tp_v_head_num=2, v_head_dim=4)
    attention = SimpleNamespace(
        qkv_proj=projection(2 * HIDDEN, 3 * HIDDEN), q_size=HIDDEN, kv_size=HIDDEN, rotary_emb=rotate, attn=radix
    )
    layer = SimpleNamespace(self_attn=attention, input_layernorm=norm(HIDDEN), hidden_norm=norm(HIDDEN))
    return SimpleNamespace(layers=[layer])


def mla_draft() -> Any:
    attention = SimpleNamespace(
        fused_qkv_a_proj_with_mqa=projection(2 * HIDDEN, 5 + 6 + 2),
        q_lora_rank=5,
        kv_lora_rank=6,
        qk_rope_head_dim=2,
        kv_a_layernorm=norm(6),
        rotary_emb=rotate,
        attn_mqa=SimpleNamespace(),
    )
    layer = SimpleNamespace(self_attn=attention, input_layernorm=norm(HIDDEN), hidden_norm=norm(HIDDEN))
    return SimpleNamespace(midlayer=layer)


def draft_runner(model: Any) -> Any:
    model.embed_tokens = nn.Embedding(VOCAB, HIDDEN, device=DEVICE)
    model.fc = nn.Linear(3 * HIDDEN, HIDDEN, device=DEVICE)
    model.fc_norm = [norm(HIDDEN)] * 3
    model.num_aux_hidden_states = 3
    pool = SimpleNamespace(set_kv_buffer=lambda radix, slots, k, v: None)
    return SimpleNamespace(model=SimpleNamespace(model=model), token_to_kv_pool=pool)


def batch(*, extend: bool) -> Any:
    from sglang.srt.model_executor.forward_batch_info import ForwardMode

    return SimpleNamespace(
        forward_mode=ForwardMode.EXTEND if extend else ForwardMode.DECODE,
        is_extend_in_batch=extend,
        extend_lens=[5, 7, 11],
        spec_info=SimpleNamespace(bonus_tokens=device_tensor(BATCH, dtype=torch.int32), future_indices=None),
        seq_lens=device_tensor(BATCH, dtype=torch.int64),
        seq_lens_cpu=torch.tensor([5, 7, 11]),
        req_pool_indices=device_tensor(BATCH, dtype=torch.int64),
        req_pool_indices_cpu=torch.arange(BATCH),
        has_grammar=False,
        return_logprob=True,
        return_hidden_states=False,
    )


def serve(worker: Worker) -> None:
    """A prefill, plain steps past a full window, and a resume."""
    worker.forward_batch_generation(batch(extend=True))
    worker.gate.threshold = BATCH - 1
    for _ in range(11):
        worker.forward_batch_generation(batch(extend=False))
    assert worker.draft_sync is not None
    worker.draft_sync.flush()
    worker.draft_sync.resume(batch(extend=False))


def read() -> None:
    with contextlib.suppress(NotImplementedError):  # what ends this process where it is not expected
        device_tensor(3).tolist()


def waits(work: Callable[[], Any]) -> list[str]:
    mode = Waits()
    with mode:
        work()
    return mode.found


def served(sync: Callable[[Worker], DraftSync]) -> list[str]:
    worker = Worker()
    worker.gate = copy.copy(worker.gate)
    worker.draft_sync = sync(worker)
    return waits(lambda: serve(worker))


def main() -> None:
    torch.Tensor.pin_memory = pin  # there is no device to pin it for
    room = Worker.generation
    found = {
        "llama": served(lambda w: DraftSync(w, room, LlamaDraftKV(draft_runner(llama_draft()), room), full=False)),
        "mla": served(lambda w: DraftSync(w, room, MLADraftKV(draft_runner(mla_draft()), room), full=False)),
        "full": served(lambda w: DraftSync(w, room, None, full=True)),
        "index from the CPU": waits(lambda: device_tensor(3)[torch.tensor([1, 2])]),
        "upload of pageable memory": waits(lambda: torch.ones(3).to(DEVICE, non_blocking=True)),
        "fill from the CPU": waits(lambda: device_tensor(3).copy_(torch.ones(3))),
        "read": waits(read),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
