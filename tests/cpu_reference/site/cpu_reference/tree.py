"""The draft tree: build it from the draft's choices, and accept along it greedily.

Tensors are per request and padded to the tree size n: ``retrive_index`` (row in the flat batch), ``retrive_next_token``
(first child) and ``retrive_next_sibling``, both -1 for none. The spelling is SGLang's: it passes them by keyword.
"""

from __future__ import annotations

import torch
from torch import Tensor

FULL_MASK, QLEN_ONLY = 0, 1  # SGLang's TreeMaskMode


def build_tree(
    parent_list: Tensor,
    selected_index: Tensor,
    verified_seq_len: Tensor,
    tree_mask: Tensor,
    positions: Tensor,
    retrive_index: Tensor,
    retrive_next_token: Tensor,
    retrive_next_sibling: Tensor,
    topk: int,
    depth: int,
    draft_token_num: int,
    tree_mask_mode: int,
) -> None:
    """Fill the mask, the positions and the three link tables.

    ``selected_index`` [requests, n - 1]: the chosen nodes in the draft's numbering, where node ``i`` hangs on entry
    ``i // topk`` of ``parent_list``. ``tree_mask`` is flat bool: [n, length + n] per request in FULL_MASK mode, the
    part over the tree, [n, n], in QLEN_ONLY mode.
    """
    n, mode = draft_token_num, int(tree_mask_mode)
    if mode not in (FULL_MASK, QLEN_ONLY):
        raise NotImplementedError("CPU reference: bit-packed tree masks are not covered")
    used = 0
    for row, length in enumerate(verified_seq_len.tolist()):
        selected = selected_index[row].tolist()
        parents = parent_list[row].tolist() if parent_list.numel() else []
        parent = [-1] * n
        paths = [[0]] * n
        for i in range(n):
            if i:
                group = selected[i - 1] // topk
                parent[i] = 0 if group == 0 else selected.index(parents[group]) + 1
                paths[i] = [*paths[parent[i]], i]
            retrive_index[row, i] = row * n + i
            positions[row * n + i] = length + len(paths[i]) - 1
        for i in range(n - 1, 0, -1):  # from the back, so that children end up in increasing order
            retrive_next_sibling[row, i] = retrive_next_token[row, parent[i]]
            retrive_next_token[row, parent[i]] = i
        visible = torch.zeros(n, n, dtype=torch.bool)
        for i, path in enumerate(paths):
            visible[i, path] = True
        width = n if mode == QLEN_ONLY else length + n
        tree_mask[used : used + n * width].view(n, width)[:, width - n :] = visible
        used += n * width


def verify_tree_greedy(
    predicts: Tensor,
    accept_index: Tensor,
    accept_token_num: Tensor,
    candidates: Tensor,
    retrive_index: Tensor,
    retrive_next_token: Tensor,
    retrive_next_sibling: Tensor,
    target_predict: Tensor,
) -> None:
    """Walk down while a child equals the target's choice; write choices, accepted rows and the number accepted.

    ``candidates`` [requests, n]: drafted tokens. ``target_predict``: the target's argmax at every tree position.
    """
    drafted, target = candidates.tolist(), target_predict.reshape(-1).tolist()
    index, child, sibling = retrive_index.tolist(), retrive_next_token.tolist(), retrive_next_sibling.tolist()
    for row in range(len(drafted)):
        node, accepted, last = 0, 0, index[row][0]
        accept_index[row, 0] = last
        while accepted + 1 < accept_index.shape[1]:
            node = child[row][node]
            while node != -1 and drafted[row][node] != target[last]:
                node = sibling[row][node]
            if node == -1:
                break
            predicts[last] = target[last]
            last = index[row][node]
            accepted += 1
            accept_index[row, accepted] = last
        accept_token_num[row] = accepted
        predicts[last] = target[last]
