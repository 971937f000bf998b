"""A byte-level tokenizer for the tiny target: one token a character. Grammars and stop strings need some tokenizer."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers  # type: ignore[import-untyped]

_SPECIAL = ["<pad>", "<s>", "</s>"]
_VOCAB = 256


def with_tokenizer(model: Path, folder: Path) -> Path:
    """Copy ``model`` to ``folder`` and put the tokenizer beside it; returns ``folder``.

    Ids 0 to 2 are the special ones that the model's config names; the rest are bytes, printable ASCII among them.
    """
    shutil.copytree(model, folder)
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(_tokens())}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in _SPECIAL])
    tokenizer.save(str(folder / "tokenizer.json"))
    pad, start, end = _SPECIAL
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": pad, "bos_token": start, "eos_token": end}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def text_of(tokens: list[int]) -> str:
    """The text of tokens that are printable ASCII; others come out as some other character."""
    return "".join(_tokens()[token] for token in tokens).replace("\u0120", " ")  # byte level's way to write a space


def _tokens() -> list[str]:
    return _SPECIAL + sorted(pre_tokenizers.ByteLevel.alphabet())[: _VOCAB - len(_SPECIAL)]
