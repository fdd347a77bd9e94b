"""What is done to a model before training keeps its vectors, trains what it says, and saves as a plain folder.

Breaks that turn a test red: one tower shared by both roles; prompts or limits lost on the way into towers; limits of
a role not applied, or not in the identity; a layer recomputed in training mode only; a dropout drawn anew when a
layer is computed again; frozen weights that move; LoRA matrices left in a saved folder, or random from the global
state; matrices beside BERT's unused pooler.
"""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from tiny_models import checkpoint
from torch import Tensor, nn

from embedtrain import backbone, gradcache
from embedtrain.backbone import describe, freeze, gradient_checkpointing, two_towers
from embedtrain.encoder import Encoder, Role
from embedtrain.errors import UsageError
from embedtrain.models import MINILM, find_model

needs_peft = pytest.mark.skipif(
    importlib.util.find_spec("peft") is None, reason="peft is not installed (the extra embedtrain[lora])"
)

TEXTS = ["a", "the cell grows", "a mouse gene " * 6, "the gene"]
CPU = torch.device("cpu")


def tiny(folder: Path, kind: str = "mlm", seed: int = 0) -> Encoder:
    return Encoder.load(find_model(str(checkpoint(folder / f"raw-{kind}", kind))), CPU, pooling="auto", seed=seed)


def loss(encoder: Encoder, texts: list[str] = TEXTS, role: Role = "document") -> Tensor:
    return encoder.forward(texts, role).square().sum()


def train_a_step(encoder: Encoder, rate: float = 0.05) -> None:
    weights = [p for p in encoder.model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(weights, lr=rate)
    (loss(encoder, role="query") + 2 * loss(encoder, role="document").sqrt()).backward()
    optimizer.step()
    optimizer.zero_grad()


def test_two_towers_start_as_one_and_part_in_training(tmp_path: Path) -> None:
    base = tiny(tmp_path)
    base.set_prompts("query: ", "passage: ")
    base.input_module("query").query_length = 6
    base.input_module("document").document_length = 12
    expected = {role: base.forward(TEXTS, role).detach() for role in ("query", "document")}
    towers = two_towers(base)
    assert sum(p.numel() for p in towers.model.parameters()) == 2 * sum(p.numel() for p in base.model.parameters())
    assert (towers.limit("query"), towers.limit("document"), towers.prompts) == (6, 12, base.prompts)
    for role, vectors in expected.items():
        assert torch.allclose(towers.forward(TEXTS, role), vectors, atol=1e-6)  # type: ignore[arg-type]
    # Each role trains its own tower.
    loss(towers, role="query").backward()
    route = towers.model[0].sub_modules
    assert any(p.grad is not None for p in route["query"].parameters())
    assert all(p.grad is None for p in route["document"].parameters())
    train_a_step(towers)
    towers.save(tmp_path / "saved")
    again = Encoder.load(find_model(str(tmp_path / "saved")), CPU)
    plain = SentenceTransformer(str(tmp_path / "saved"), device="cpu", local_files_only=True)
    assert again.prompts == base.prompts
    assert again.limit("query") == 6
    assert plain.similarity_fn_name == "cosine"
    theirs = {"query": plain.encode_query(TEXTS), "document": plain.encode_document(TEXTS)}
    for role, found in theirs.items():
        ours = again.encode(TEXTS, role, stored=False)[:]  # type: ignore[arg-type]
        assert np.abs(ours - found).max() < 1e-5
        assert np.abs(towers.encode(TEXTS, role, stored=False)[:] - found).max() < 1e-5  # type: ignore[arg-type]
        assert np.abs(found - expected[role].numpy()).max() > 1e-3
    again.set_prompts("", "")
    assert (
        np.abs(again.encode(TEXTS, "query", stored=False)[:] - again.encode(TEXTS, "document", stored=False)[:])[
            3
        ].max()
        > 1e-3
    )
    with pytest.raises(UsageError, match="has routes already"):
        two_towers(again)


def test_two_towers_in_bfloat16_are_pooled_in_float32(tmp_path: Path) -> None:
    two_towers(tiny(tmp_path)).save(tmp_path / "saved")
    source = find_model(str(tmp_path / "saved"))
    exact, rough = (Encoder.load(source, CPU, wanted=wanted) for wanted in ("float32", "bfloat16"))
    for role in ("query", "document"):
        one, other = exact.forward(TEXTS, role), rough.forward(TEXTS, role)  # type: ignore[arg-type]
        assert other.dtype == torch.float32
        assert not torch.equal(one, other)
        assert torch.nn.functional.cosine_similarity(one, other).min() > 0.999


def test_each_role_has_its_limit_in_every_stage_and_in_sentence_transformers(tmp_path: Path) -> None:
    encoder = tiny(tmp_path)
    assert (encoder.limit("query"), encoder.limit("document"), encoder.max_length) == (64, 64, 64)
    whole = encoder.identity("query")
    encoder.input_module("query").query_length = 5
    assert (encoder.limit("query"), encoder.limit("document"), encoder.max_length) == (5, 64, 64)
    assert encoder.identity("query") != whole
    long, cut = "the cell grows the mouse", "the cell grows"  # 3 words and 2 special tokens
    assert torch.equal(encoder.forward([long], "query"), encoder.forward([cut], "query"))
    assert not torch.allclose(encoder.forward([long], "document"), encoder.forward([cut], "document"), atol=1e-3)
    assert encoder.token_lengths([long], "query").tolist() == [7]
    encoder.save(tmp_path / "saved")
    again = Encoder.load(find_model(str(tmp_path / "saved")), CPU)
    assert (again.limit("query"), again.limit("document")) == (5, 64)
    plain = SentenceTransformer(str(tmp_path / "saved"), device="cpu", local_files_only=True)
    assert np.array_equal(plain.encode_query([long]), plain.encode_query([cut]))
    assert not np.allclose(plain.encode_document([long]), plain.encode_document([cut]), atol=1e-3)
    stored = again.encode([long, cut], "query", stored=False)[:]
    assert np.array_equal(stored[0], stored[1])


def test_what_decides_how_a_text_becomes_a_vector_is_told(tmp_path: Path) -> None:
    encoder = Encoder.load(find_model(MINILM), CPU)
    encoder.set_prompts("query: ", None)
    told = describe(encoder)
    assert told == {
        "towers": "one",
        "pooling": "mean",
        "normalised": told["normalised"],
        "length limit": "256 tokens",
        "compared by": "cosine",
        "dimension": "384",
        "query prompt": "'query: '",
        "document prompt": "''",
    }
    towers = two_towers(tiny(tmp_path))
    towers.input_module("query").query_length = 8
    told = describe(towers)
    assert (told["towers"], told["pooling"], told["normalised"]) == ("two", "mean", "no")
    assert (told["query length limit"], told["document length limit"]) == ("8 tokens", "64 tokens")


@pytest.mark.parametrize("kind", ["mlm", "qwen2", "t5"])
@pytest.mark.parametrize("what", ["embeddings", 1])
def test_frozen_parameters_stay_and_the_rest_is_counted(tmp_path: Path, kind: str, what: str | int) -> None:
    encoder = tiny(tmp_path, kind)
    trained = freeze(encoder, what)
    before = {name: p.clone() for name, p in encoder.model.named_parameters()}
    train_a_step(encoder)
    moved = {name for name, p in encoder.model.named_parameters() if not torch.equal(p, before[name])}
    still = ["embed", "shared"] + ([".layer.0.attention", ".layers.0.", ".block.0."] if what == 1 else [])
    assert moved
    assert not any(part in name for name in moved for part in still)
    assert any(".layer.1.attention" in name or ".layers.1." in name or ".block.1." in name for name in moved)
    if what == "embeddings":
        assert any(".layer.0.attention" in name or ".layers.0." in name or ".block.0." in name for name in moved)
    sizes = {name: p.numel() for name, p in encoder.model.named_parameters()}
    assert trained.total == sum(sizes.values())
    assert trained.trained == sum(size for name, size in sizes.items() if before[name].requires_grad)
    assert str(trained).endswith(f"frozen: {trained.trained:,} of {trained.total:,} parameters are trained")


def test_layers_there_are_not_are_refused(tmp_path: Path) -> None:
    encoder = tiny(tmp_path)
    with pytest.raises(UsageError, match="--freeze 3: model raw-mlm has 2 layers"):
        freeze(encoder, 3)
    with pytest.raises(UsageError, match="--freeze -1: give embeddings, or the number of layers"):
        freeze(encoder, -1)
    # Of all layers frozen only a pooler that nothing uses would be left.
    with pytest.raises(UsageError, match="2 layers and one at least is trained"):
        freeze(two_towers(encoder), "2")


class Count(nn.Module):
    """Counts how often a layer's inner part is computed."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.calls = inner, 0

    def forward(self, *args: Tensor) -> Tensor:
        self.calls += 1
        return self.inner(*args)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("kind", ["mlm", "qwen2"])
def test_recomputed_layers_give_the_same_gradient_p44(
    tmp_path: Path, kind: str, cached: bool, dropout: float
) -> None:
    found = []
    for recompute in (False, True):
        encoder = tiny(tmp_path / str(recompute), kind)
        encoder.model.train(dropout > 0)
        for module in encoder.model.modules():
            if isinstance(module, nn.Dropout):
                module.p = dropout
            if hasattr(module, "attention_dropout"):
                module.attention_dropout = dropout
        if recompute:
            assert gradient_checkpointing(encoder) == 2
            assert gradient_checkpointing(encoder) == 2  # twice is once
        layer = encoder.model[0].model.encoder.layer[0] if kind == "mlm" else encoder.model[0].model.layers[0]
        name = "intermediate" if kind == "mlm" else "mlp"
        counter = Count(getattr(layer, name))
        setattr(layer, name, counter)
        value = gradcache.step(
            lambda chunk, encoder=encoder: encoder.forward(chunk, "query"),
            [TEXTS[:2], TEXTS[2:]],
            [2, len(TEXTS) - 2],
            lambda outputs: torch.cat(outputs).mean(0).square().sum(),
            parameters=encoder.model.parameters(),
            seed=(5,),
            cached=cached,
        )
        # Two chunks: forward, again where cached, and once more on the way back where recomputed.
        assert counter.calls == 2 * (1 + cached + recompute)
        gradients = {n.replace(".inner.", "."): p.grad for n, p in encoder.model.named_parameters()}
        found.append((value, gradients))
    (value, gradients), (again, recomputed) = found
    assert torch.allclose(value, again, rtol=1e-6)
    assert sum(g is not None for g in gradients.values()) > 10
    for name, gradient in gradients.items():
        if gradient is None:
            assert recomputed[name] is None
        else:
            assert torch.allclose(gradient, recomputed[name], atol=1e-6), name


def test_recomputed_layers_cost_nothing_without_gradient(tmp_path: Path) -> None:
    encoder = tiny(tmp_path)
    before = encoder.encode(TEXTS, "query", stored=False)[:]
    gradient_checkpointing(encoder)
    assert np.array_equal(encoder.encode(TEXTS, "query", stored=False)[:], before)
    encoder.save(tmp_path / "saved")
    again = Encoder.load(find_model(str(tmp_path / "saved")), CPU)
    assert np.array_equal(again.encode(TEXTS, "query", stored=False)[:], before)


def test_frozen_layers_and_recomputed_ones_go_together(tmp_path: Path) -> None:
    encoder = two_towers(tiny(tmp_path))
    freeze(encoder, 1)
    assert gradient_checkpointing(encoder) == 4
    loss(encoder).backward()
    grown = {name for name, p in encoder.model.named_parameters() if p.grad is not None}
    assert grown
    assert not any(".layer.0." in name or "embeddings" in name for name in grown)


@needs_peft
@pytest.mark.parametrize("kind", ["mlm", "qwen2"])
def test_lora_starts_as_the_model_and_is_merged_into_a_plain_one(tmp_path: Path, kind: str) -> None:
    encoder = tiny(tmp_path, kind)
    keys = list(encoder.model.state_dict())
    before = {name: p.clone() for name, p in encoder.model.named_parameters()}
    vectors = encoder.forward(TEXTS, "query").detach()
    lora = backbone.add_lora(encoder, 4, 8.0)
    assert torch.equal(encoder.forward(TEXTS, "query"), vectors)
    names = {name for name, p in encoder.model.named_parameters() if p.requires_grad}
    assert all(".lora_" in name for name in names)
    # Every linear layer of the two layers has a pair: 6 in BERT's, 7 in Qwen's; none beside the pooler.
    assert len(names) == 2 * 2 * (6 if kind == "mlm" else 7)
    assert not any("pooler" in name for name in names)
    assert lora.trained.trained == sum(p.numel() for name, p in encoder.model.named_parameters() if name in names)
    for _ in range(3):
        train_a_step(encoder, 0.5)
    tuned = encoder.forward(TEXTS, "query").detach()
    assert not torch.allclose(tuned, vectors, atol=1e-3)
    with pytest.raises(ValueError, match="not merged"):
        encoder.save(tmp_path / "early")
    lora.merge()
    assert list(encoder.model.state_dict()) == keys
    assert torch.allclose(encoder.forward(TEXTS, "query"), tuned, atol=1e-5)
    changed = {n for n, p in encoder.model.named_parameters() if not torch.equal(p, before[n])}
    assert changed
    assert not any("embed" in name or "orm" in name or "bias" in name for name in changed)
    encoder.save(tmp_path / "saved")
    again = Encoder.load(find_model(str(tmp_path / "saved")), CPU)
    assert torch.allclose(again.forward(TEXTS, "query"), tuned, atol=1e-5)
    assert not list((tmp_path / "saved").rglob("adapter*"))


@needs_peft
def test_the_start_of_lora_comes_from_the_seed(tmp_path: Path) -> None:
    found = []
    for number, seed in enumerate((1, 1, 2)):
        encoder = tiny(tmp_path / str(number))
        state = torch.get_rng_state()
        backbone.add_lora(encoder, 2, 4.0, seed=seed)
        assert torch.equal(torch.get_rng_state(), state)
        found.append({n: p for n, p in encoder.model.named_parameters() if ".lora_A." in n})
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])
    assert not any(torch.equal(found[0][name], found[2][name]) for name in found[0])


@needs_peft
def test_two_towers_recomputed_with_lora(tmp_path: Path) -> None:
    encoder = two_towers(tiny(tmp_path))
    lora = backbone.add_lora(encoder, 2, 4.0)
    assert gradient_checkpointing(encoder) == 4
    train_a_step(encoder)
    lora.merge()
    encoder.save(tmp_path / "saved")
    again = Encoder.load(find_model(str(tmp_path / "saved")), CPU)
    assert torch.allclose(again.forward(TEXTS, "query"), encoder.forward(TEXTS, "query"), atol=1e-5)


def test_lora_without_peft_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"install it with: pip install embedtrain\[lora\]"):
        backbone.add_lora(None)  # type: ignore[arg-type]
