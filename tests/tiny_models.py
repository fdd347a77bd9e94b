"""Small random transformers as a user's checkpoint folders, made in a moment; no weights of anybody's."""

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, pre_tokenizers, processors
from tokenizers.models import WordLevel
from transformers import (
    BartConfig,
    BertConfig,
    BertForMaskedLM,
    BertModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2Tokenizer,
    T5Config,
    T5ForConditionalGeneration,
)

WORDS = ["a", "cell", "grows", "the", "mouse", "gene", "word", "query:", "passage:", "three", "short", "words"]
SIZE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}


def tokenizer(*, end: bool, bert: bool = False, side: str = "right", pad: bool = True) -> PreTrainedTokenizerFast:
    """Words at blanks; with a start token and, where `end`, an end token."""
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "<s>", "</s>", "[MASK]"]
    inner = Tokenizer(WordLevel({word: i for i, word in enumerate(names + WORDS)}, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    first, last = ("[CLS]", "[SEP]") if bert else ("<s>", "</s>")
    ids = [(name, names.index(name)) for name in (first, last)]
    inner.post_processor = processors.TemplateProcessing(
        single=f"{first} $A {last}" if end else f"{first} $A", special_tokens=ids
    )
    kinds: dict[str, Any] = {"pad_token": "[PAD]"} if pad else {}
    if bert:
        kinds |= {"cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
    else:
        kinds |= {"bos_token": "<s>", "eos_token": "</s>"}
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, unk_token="[UNK]", padding_side=side, model_max_length=64, **kinds
    )


def byte_tokenizer(side: str = "right") -> Qwen2Tokenizer:
    """Qwen's own tokenizer without merges: a token a byte, and no start or end token."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    return Qwen2Tokenizer(
        vocab={token: i for i, token in enumerate([*letters, "<|endoftext|>"])},
        merges=[],
        padding_side=side,
        model_max_length=64,
    )


def checkpoint(folder: Path, kind: str, **options: Any) -> Path:
    """A raw checkpoint: bert (without heads), mlm, qwen2, llama, t5 or bart."""
    torch.manual_seed(1)
    size: dict[str, Any] = {"vocab_size": 19, "max_position_embeddings": 64, **SIZE}
    models: dict[str, Any] = {
        "bert": lambda: BertModel(BertConfig(**size)),
        "mlm": lambda: BertForMaskedLM(BertConfig(**size)),
        "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(num_key_value_heads=1, **{**size, "vocab_size": 257})),
        "llama": lambda: LlamaForCausalLM(LlamaConfig(**size)),
        "t5": lambda: T5ForConditionalGeneration(
            T5Config(vocab_size=19, d_model=32, d_kv=16, d_ff=64, num_layers=2, num_heads=2)
        ),
    }
    if kind == "bart":
        folder.mkdir(parents=True)
        BartConfig(vocab_size=19, architectures=["BartModel"]).save_pretrained(folder)
        (folder / "model.safetensors").write_bytes(b"never read")
    else:
        models[kind]().save_pretrained(folder)
    bert = kind in ("bert", "mlm")
    if kind == "qwen2":
        byte_tokenizer(**options).save_pretrained(folder)
    else:
        tokenizer(**{"end": bert or kind == "t5", "bert": bert, **options}).save_pretrained(folder)
    return folder
