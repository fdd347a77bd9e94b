"""Pooling: found, changed, saved, added to a raw checkpoint; whatever the padding and whatever stands beside a text.

Breaks that turn a test red: a raw checkpoint let through by eval; the mean for a decoder; no end token added, or no
check of it; the padding side left as it was; another pooling under the identity of the old one; random weights from
the global state; an encoder-decoder let through; a pooling whose file is gone filled up with a default; the chat
template kept.
"""

import json
import shutil
from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from tiny_models import checkpoint, tokenizer

from embedtrain import models, pooling
from embedtrain.encoder import Encoder
from embedtrain.errors import EmbedtrainError, UsageError
from embedtrain.models import MINILM, find_encoder, find_model

TEXTS = ["a", "the cell grows", "a mouse gene " * 8]


def load(path: Path, mode: str | None = "auto", seed: int = 0) -> Encoder:
    return Encoder.load(find_model(str(path)), torch.device("cpu"), pooling=mode, seed=seed)


# P50's mask and rows, on both sides of the padding.
@pytest.mark.parametrize(
    ("mode", "expected"), [("lasttoken", [2, 2]), ("cls", [1, 0]), ("mean", [1, 1]), ("max", [2, 2])]
)
@pytest.mark.parametrize("left", [True, False])
def test_padding_is_never_pooled_p50(mode: str, expected: list[float], left: bool) -> None:
    mask, rows = [0, 0, 1, 1, 1], [[9.0, 9.0], [9.0, 9.0], [1.0, 0.0], [0.0, 1.0], [2.0, 2.0]]
    if not left:
        mask, rows = mask[2:] + mask[:2], rows[2:] + rows[:2]
    features = {"token_embeddings": torch.tensor([rows]), "attention_mask": torch.tensor([mask])}
    assert Pooling(2, mode)(features)["sentence_embedding"].tolist() == [expected]


def test_a_weighted_mean_starts_behind_the_padding_p50() -> None:
    rows = torch.tensor([[[9.0], [9.0], [1.0], [0.0], [2.0]]])
    features = {"token_embeddings": rows, "attention_mask": torch.tensor([[0, 0, 1, 1, 1]])}
    # (1 * 1 + 2 * 0 + 3 * 2) / 6
    assert Pooling(1, "weightedmean")(features)["sentence_embedding"].item() == pytest.approx(7 / 6)


def test_a_prompt_left_out_of_the_mean_is_left_out_twice_p56() -> None:
    rows = torch.tensor([[[9.0, 9.0], [9.0, 9.0], [5.0, 5.0], [5.0, 5.0], [1.0, 0.0], [0.0, 1.0]]])
    mask = torch.tensor([[0, 0, 1, 1, 1, 1]])
    features = {"token_embeddings": rows, "attention_mask": mask, "prompt_length": 2}
    for include, expected in ((False, [0.5, 0.5]), (False, [0.5, 0.5]), (True, [2.75, 2.75])):
        found = Pooling(2, "mean", include_prompt=include)(features)
        assert found["sentence_embedding"].tolist() == [expected]
    assert mask.tolist() == [[0, 0, 1, 1, 1, 1]]


def test_a_prompt_is_in_the_text_and_out_of_the_mean_p56(tmp_path: Path) -> None:
    """What the model pools of 'query: the cell' in context is the words and the end, not the start and the prompt."""
    encoder = load(checkpoint(tmp_path / "m", "mlm"))
    encoder.set_prompts("query: ", None)
    encoder.model.set_pooling_include_prompt(False)
    features = encoder.model[0].preprocess(["query: the cell"])
    tokens = encoder.model[0](features)["token_embeddings"][0]
    assert tokens.shape[0] == 5
    alone = encoder.forward(["the cell"], "query")[0]
    assert torch.allclose(alone, tokens[2:].mean(0), atol=1e-6)
    together = encoder.forward(["the cell", "the cell grows a mouse"], "query", width=16)[0]
    assert torch.allclose(alone, together, atol=1e-5)


@pytest.mark.parametrize("kind", ["mlm", "bert"])
def test_a_raw_encoder_is_pooled_by_its_mean_and_it_is_said(tmp_path: Path, kind: str) -> None:
    encoder = load(checkpoint(tmp_path / "raw", kind))
    assert pooling.found(encoder.model) == {"query": "mean", "document": "mean"}
    assert "raw is a checkpoint without pooling and without contrastive training: pooling mean" in encoder.notes[0]
    # A masked language model has no pooler, so that one starts random (P98).
    names = ("pooler.dense.bias", "pooler.dense.weight")
    assert encoder.created == (names if kind == "mlm" else ())
    said = [
        note for note in encoder.notes if note.startswith("2 weights are not in raw and start random (seed 0)")
    ]
    assert bool(said) == (kind == "mlm")


def test_random_weights_come_from_the_seed_p98(tmp_path: Path) -> None:
    path = checkpoint(tmp_path / "raw", "mlm")
    before = torch.get_rng_state()
    one, same, other = (load(path, seed=seed).model.state_dict() for seed in (3, 3, 4))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert {name for name in one if not torch.equal(one[name], other[name])} == {
        name for name in one if name.endswith("pooler.dense.weight")
    }


def test_eval_and_mine_refuse_a_raw_checkpoint_and_name_what_trains_it_p98(tmp_path: Path) -> None:
    path = checkpoint(tmp_path / "raw", "mlm")
    with pytest.raises(
        EmbedtrainError, match=r"its pooling is not known and nothing says that it has had contras.*"
    ):
        load(path, None)
    with pytest.raises(EmbedtrainError, match="embedtrain finetune --pooling auto"):
        find_encoder(str(path))
    assert find_encoder(str(path), raw=True).path == path


def test_trained_from_raw_it_is_saved_as_a_plain_folder_p52(tmp_path: Path) -> None:
    encoder = load(checkpoint(tmp_path / "raw", "mlm"), "cls")
    assert "pooling cls added" in encoder.notes[0]
    encoder.save(tmp_path / "saved")
    again = load(tmp_path / "saved", None)
    assert pooling.found(again.model)["query"] == "cls"
    assert again.notes == []
    assert type(again.model[0]) is Transformer
    assert torch.allclose(again.forward(TEXTS, "query"), encoder.forward(TEXTS, "query"), atol=1e-6)
    plain = SentenceTransformer(str(tmp_path / "saved"), local_files_only=True)
    assert torch.allclose(torch.tensor(plain.encode(TEXTS)), encoder.forward(TEXTS, "query").detach(), atol=1e-5)
    (tmp_path / "saved" / "1_Pooling" / "config.json").unlink()
    with pytest.raises(EmbedtrainError, match=r"lost 1_Pooling/config.json, so its pooling is not known"):
        load(tmp_path / "saved", None)


@pytest.mark.parametrize(("kind", "end"), [("qwen2", "<|endoftext|>"), ("llama", "</s>")])
def test_a_raw_decoder_reads_its_last_token_an_end_token_p53(tmp_path: Path, kind: str, end: str) -> None:
    options = {"pad": False} if kind == "llama" else {}
    encoder = load(checkpoint(tmp_path / "raw", kind, side="left", **options))
    assert pooling.found(encoder.model)["document"] == "lasttoken"
    said = [f"the tokenizer ends a text with a word: {end} is added as its end token"]
    if kind == "llama":
        said.insert(0, "the tokenizer has no padding token: </s> pads (and is masked)")
    assert encoder.notes[1:] == said
    encoder.save(tmp_path / "saved")
    for one in (encoder, load(tmp_path / "saved", None)):
        words = one.model.tokenizer
        assert words.padding_side == "right"
        whole = words("a a a", add_special_tokens=False)["input_ids"]
        for text, length in (("a a a", len(whole) + 1 + (kind == "llama")), ("a " * 30, 10)):
            ids = words(text, truncation=True, max_length=10)["input_ids"]
            assert len(ids) == length
            assert words.convert_ids_to_tokens(ids)[-1] == end
            assert ids.count(words.eos_token_id) == 1


def test_a_last_token_model_without_end_token_is_refused_p53(tmp_path: Path) -> None:
    path = checkpoint(tmp_path / "raw", "llama")
    load(path).save(tmp_path / "saved")
    tokenizer(end=False).save_pretrained(tmp_path / "saved")
    with pytest.raises(EmbedtrainError, match="pools the last token, and its tokenizer ends a text"):
        load(tmp_path / "saved", None)
    assert pooling.found(load(tmp_path / "saved", "mean").model)["query"] == "mean"


def test_an_end_token_that_truncation_cuts_is_none_p53() -> None:
    class Cutting:
        all_special_ids = (5,)

        def __call__(self, text: str, truncation: bool = False, max_length: int = 0) -> dict[str, list[int]]:
            return {"input_ids": [7] * max_length if truncation else [7, 7, 5]}

    assert not pooling._keeps_end(Cutting())
    assert pooling._keeps_end(tokenizer(end=True))


@pytest.mark.parametrize(("kind", "side"), [("mlm", "right"), ("qwen2", "right"), ("qwen2", "left")])
@pytest.mark.parametrize("mode", ["mean", "cls", "lasttoken", "weightedmean", "max"])
def test_alone_is_beside_others_p50_p51(tmp_path: Path, kind: str, mode: str, side: str) -> None:
    encoder = load(checkpoint(tmp_path / "raw", kind), mode)
    encoder.model.tokenizer.padding_side = side
    together = encoder.forward(TEXTS, "document")
    alone = torch.cat([encoder.forward([text], "document", width=30) for text in TEXTS])
    assert torch.isfinite(together).all()
    assert torch.nn.functional.cosine_similarity(together, alone).min() > 0.99999
    assert torch.allclose(together, alone, atol=1e-5)


@pytest.mark.parametrize("kind", ["mlm", "qwen2"])
def test_left_padding_is_refused_where_it_moves_the_words_p51(tmp_path: Path, kind: str) -> None:
    load(checkpoint(tmp_path / "raw", kind)).save(tmp_path / "saved")
    settings = tmp_path / "saved" / "tokenizer_config.json"
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "padding_side": "left"}))
    if kind == "qwen2":
        assert load(tmp_path / "saved", None).model.tokenizer.padding_side == "left"
    else:
        with pytest.raises(EmbedtrainError, match="pads on the left, where its learned positions would move"):
            load(tmp_path / "saved", None)


def test_another_pooling_takes_the_place_of_the_models_own(tmp_path: Path) -> None:
    own = Encoder.load(find_model(MINILM))
    changed = Encoder.load(find_model(MINILM), pooling="cls")
    assert pooling.found(own.model)["query"] == "mean"
    assert pooling.found(changed.model)["query"] == "cls"
    assert changed.notes == ["pooling cls in place of the model's own mean"]
    assert Encoder.load(find_model(MINILM), pooling="auto").notes == []
    assert own.identity("query") != changed.identity("query")
    changed.save(tmp_path / "m")
    assert pooling.found(load(tmp_path / "m", None).model)["query"] == "cls"


def test_a_pooling_there_is_not_is_refused() -> None:
    assert pooling.check_pooling("lasttoken") == "lasttoken"
    with pytest.raises(UsageError, match="--pooling median: auto, mean, cls, lasttoken, weightedmean, max are"):
        pooling.check_pooling("median")


def test_the_encoder_of_a_t5_is_taken_alone(tmp_path: Path) -> None:
    encoder = load(checkpoint(tmp_path / "t5", "t5"))
    assert pooling.found(encoder.model)["query"] == "mean"
    assert not any("decoder" in name for name, _ in encoder.model.named_parameters())
    assert encoder.forward(TEXTS, "query").shape == (3, 32)
    encoder.save(tmp_path / "saved")
    again = load(tmp_path / "saved", None)
    assert torch.allclose(again.forward(TEXTS, "query"), encoder.forward(TEXTS, "query"), atol=1e-6)


def test_other_encoder_decoders_are_refused_before_they_are_loaded_p97(tmp_path: Path) -> None:
    path = checkpoint(tmp_path / "bart", "bart")
    with pytest.raises(
        EmbedtrainError, match=r"an encoder-decoder of type bart, whose encoder .* cannot load alone"
    ):
        find_encoder(str(path), raw=True)
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, "model_type": "", "is_encoder_decoder": False}))
    with pytest.raises(EmbedtrainError, match=r"has no config.json with a model_type"):
        find_encoder(str(path), raw=True)


def test_the_list_of_encoders_taken_alone_is_the_librarys() -> None:
    from sentence_transformers.base.modules import transformer as library

    known = {config.model_type for config, _, _ in library._ENCODER_ONLY_MODELS}
    audio_and_pages = {"whisper", "moonshine", "udop"}
    own_branches = {"t5gemma", "t5gemma2"}
    assert {name for name in known if not name.startswith("t5gemma2")} - audio_and_pages == (
        models.ENCODER_ALONE - own_branches
    )


def test_no_chat_template_gets_into_a_text(tmp_path: Path) -> None:
    path = checkpoint(tmp_path / "raw", "qwen2")
    (path / "chat_template.jinja").write_text("{% for m in messages %}the mouse {{ m.content }}{% endfor %}")
    features = load(path).model.preprocess(["a"])
    assert load(path).model.tokenizer.decode(features["input_ids"][0]) == "a<|endoftext|>"


def test_a_raw_cross_encoder_stays_refused(tmp_path: Path) -> None:
    path = checkpoint(tmp_path / "raw", "mlm")
    config = json.loads((path / "config.json").read_text())
    config["architectures"] = ["BertForSequenceClassification"]
    (path / "config.json").write_text(json.dumps(config))
    with pytest.raises(EmbedtrainError, match="is a cross-encoder"):
        find_encoder(str(path), raw=True)


def test_a_pooling_inside_a_router_is_missed_too(tmp_path: Path) -> None:
    from embedtrain.backbone import two_towers

    two_towers(load(checkpoint(tmp_path / "raw", "mlm"))).save(tmp_path / "saved")
    load(tmp_path / "saved", None)
    shutil.rmtree(tmp_path / "saved" / "query_1_Pooling")
    with pytest.raises(EmbedtrainError, match=r"lost query_1_Pooling/config.json"):
        load(tmp_path / "saved", None)
