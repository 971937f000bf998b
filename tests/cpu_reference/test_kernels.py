"""The stand-ins against independent answers: PyTorch's attention, trees drawn by hand, the target's distribution."""

from __future__ import annotations

import pytest
import torch
from cpu_reference import amx_attention, sampling, slots, tree
from cpu_reference.attend import attend, causal
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

# Root 0 with children 1 and 2, and 3 below 2.
TREE_SIZE = 4
VISIBLE = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 1, 1]], dtype=torch.bool)


def build(mode: int, seq_len: int) -> dict[str, Tensor]:
    """The tree above for one request, as SGLang's draft would number it: topk 2, two levels."""
    width = TREE_SIZE if mode == tree.QLEN_ONLY else seq_len + TREE_SIZE
    built = {
        "tree_mask": torch.ones(TREE_SIZE * width, dtype=torch.bool),
        "positions": torch.zeros(TREE_SIZE, dtype=torch.long),
        "retrive_index": torch.full((1, TREE_SIZE), -1),
        "retrive_next_token": torch.full((1, TREE_SIZE), -1),
        "retrive_next_sibling": torch.full((1, TREE_SIZE), -1),
    }
    tree.build_tree(
        parent_list=torch.tensor([[-1, 0, 1]]),  # group 0 hangs on the root, group g on the node selected as g - 1
        selected_index=torch.tensor([[0, 1, 4]]),  # both of level 1, and the first choice below the second of them
        verified_seq_len=torch.tensor([seq_len]),
        topk=2,
        depth=2,
        draft_token_num=TREE_SIZE,
        tree_mask_mode=mode,
        **built,
    )
    return built


@pytest.mark.parametrize("mode", [tree.FULL_MASK, tree.QLEN_ONLY])
def test_tree_mask_positions_and_links(mode: int) -> None:
    built = build(mode, seq_len=5)
    mask = built["tree_mask"].view(TREE_SIZE, -1)
    assert torch.equal(mask[:, -TREE_SIZE:], VISIBLE)
    assert mask[:, :-TREE_SIZE].all()  # the prefix is visible to all
    assert built["positions"].tolist() == [5, 6, 6, 7]
    assert built["retrive_next_token"].tolist() == [[1, -1, 3, -1]]
    assert built["retrive_next_sibling"].tolist() == [[-1, 2, -1, -1]]


@pytest.mark.parametrize(
    ("target", "rows", "tokens"),
    [
        ([20, 0, 30, 99], [0, 2, 3], [20, 30, 99]),  # second child, then its child, then the bonus
        ([10, 77, 0, 0], [0, 1], [10, 77]),
        ([55, 0, 0, 0], [0], [55]),  # nothing drafted was right
    ],
)
def test_greedy_verify_follows_the_target(target: list[int], rows: list[int], tokens: list[int]) -> None:
    built = build(tree.QLEN_ONLY, seq_len=5)
    predicts, index, count = torch.zeros(4, dtype=torch.int32), torch.full((1, 3), -1), torch.zeros(1)
    tree.verify_tree_greedy(
        predicts,
        index,
        count,
        candidates=torch.tensor([[1, 10, 20, 30]]),
        retrive_index=built["retrive_index"],
        retrive_next_token=built["retrive_next_token"],
        retrive_next_sibling=built["retrive_next_sibling"],
        target_predict=torch.tensor([target]),
    )
    assert index[0, : len(rows)].tolist() == rows
    assert int(count[0]) == len(rows) - 1
    assert [int(predicts[row]) for row in rows] == tokens


def test_sampled_verify_keeps_the_target_distribution() -> None:
    """Whatever was drafted, the first new token is distributed as the target says."""
    trials = 4000
    target = torch.tensor([0.5, 0.2, 0.2, 0.1])
    generator = torch.Generator().manual_seed(0)
    index = torch.arange(3 * trials).view(trials, 3)
    predicts = torch.full((3 * trials,), -1, dtype=torch.int32)
    sampling.tree_speculative_sampling_target_only(
        predicts,
        torch.full((trials, 3), -1),
        torch.zeros(trials, dtype=torch.int32),
        candidates=torch.tensor([[9, 1, 3]]).expand(trials, -1),  # two siblings: tokens 1 and 3
        retrive_index=index,
        retrive_next_token=torch.tensor([[1, -1, -1]]).expand(trials, -1),
        retrive_next_sibling=torch.tensor([[-1, 2, -1]]).expand(trials, -1),
        uniform_samples=torch.rand(trials, 3, generator=generator),
        uniform_samples_for_final_sampling=torch.rand(trials, generator=generator),
        target_probs=target.expand(trials, 3, -1),
        draft_probs=torch.zeros(trials, 3, 4),
    )
    first = predicts[index[:, 0]].long()
    seen = torch.bincount(first, minlength=4) / trials
    error = (target * (1 - target) / trials).sqrt()
    assert ((seen - target).abs() < 4 * error).all(), seen


def test_renormalised_probabilities() -> None:
    probs = torch.tensor([[0.5, 0.3, 0.15, 0.05]])
    assert torch.allclose(sampling.top_k_renorm_prob(probs, torch.tensor([2])), torch.tensor([[0.625, 0.375, 0, 0]]))
    assert torch.allclose(sampling.top_p_renorm_prob(probs, torch.tensor([0.6])), torch.tensor([[0.625, 0.375, 0, 0]]))
    assert torch.allclose(sampling.top_p_renorm_prob(probs, torch.tensor([1.0])), probs)


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (4, 2), (6, 1)])
def test_attention_equals_pytorchs(heads: int, kv_heads: int) -> None:
    generator = torch.Generator().manual_seed(heads)
    q = torch.randn(3, heads, 8, generator=generator)
    k, v = (torch.randn(7, kv_heads, 8, generator=generator) for _ in range(2))
    mask = causal(torch.arange(4, 7), 7, window=None)
    expected = scaled_dot_product_attention(
        q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1), mask, enable_gqa=True
    ).transpose(0, 1)
    assert torch.allclose(attend(q, k, v, mask, scale=8**-0.5), expected, atol=1e-6)


def test_decoding_token_by_token_equals_extending() -> None:
    """The plain decode path and the verify path have to agree, or greedy equality means nothing."""
    generator = torch.Generator().manual_seed(3)
    heads, dim, length, prefix = 2, 8, 6, 2
    q, k, v = (torch.randn(length, heads, dim, generator=generator) for _ in range(3))
    table = torch.tensor([[9, 9, 9, 9, 9, 9], [4, 0, 5, 2, 1, 3]])
    row, places = torch.tensor([1]), table[1]

    def pools(filled: int) -> tuple[Tensor, Tensor]:
        k_pool, v_pool = torch.zeros(10, heads, dim), torch.zeros(10, heads, dim)
        k_pool[places[:filled]], v_pool[places[:filled]] = k[:filled], v[:filled]
        return k_pool, v_pool

    extended = torch.zeros(length - prefix, heads, dim)
    amx_attention.extend_attention_cpu(
        q[prefix:], k[prefix:], v[prefix:], extended, *pools(length), table, row, torch.tensor([length]),
        torch.tensor([length - prefix]), torch.tensor([0]), length - prefix, 0.3, 0.0, False, -1,
    )  # fmt: skip

    k_pool, v_pool = pools(prefix)
    for position in range(prefix, length):
        one = slice(position, position + 1)
        decoded = torch.zeros(1, heads, dim)
        amx_attention.decode_attention_cpu(
            q[one], k_pool, v_pool, decoded, k[one], v[one], places[one], None, table, row,
            torch.tensor([position + 1]), 0.3, 0.0, False, -1,
        )  # fmt: skip
        assert torch.equal(decoded[0], extended[position - prefix])


def test_moving_kv_rows_reads_all_before_it_writes() -> None:
    layer = torch.arange(12, dtype=torch.float32).view(4, 3)
    before = layer.clone()
    slots.copy_all_layer_kv_cache_cpu(
        torch.tensor([layer.data_ptr()]), torch.tensor([3 * 4]), torch.tensor([1, 2]), torch.tensor([2, 1])
    )
    assert torch.equal(layer, before[[0, 2, 1, 3]])


def test_draft_branches_share_the_prefix_and_own_the_rest() -> None:
    table = torch.arange(20).view(2, 10)
    rows = slots.build_draft_decode_metadata_cpu(table, torch.tensor([1]), torch.tensor([3]), 2, 2, 10)
    assert rows[:, :3].tolist() == [[10, 11, 12]] * 2
    assert rows[:, 3:5].tolist() == [[13, 14], [15, 16]]
