"""Local language models: a reply depends on the prompt, the seed and the weights, and on nothing beside it.

Deliberate breaks that turn a test red: one generator for all prompts; sampling by the library (global random
state); a temperature that multiplies; more than the ten best tokens; the prompt in the reply; a prompt cut to the
model's length in silence; a chat template passed over; an encoder taken for a writer.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny_models import byte_tokenizer, checkpoint
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer

from embedtrain.collection import Texts
from embedtrain.config import GenerateOptions
from embedtrain.errors import EmbedtrainError, UsageError
from embedtrain.harvest.draft import Document, Draft
from embedtrain.harvest.finders import found_again, open_finders
from embedtrain.harvest.generated import generate, open_writer
from embedtrain.harvest.generated.local_model import LocalModel, _draw
from embedtrain.harvest.generated.replies import Reply
from embedtrain.models import MINILM, find_model

PROMPTS = ["the cell grows", "a mouse gene", "three short words", "word the a"]


def writer(folder: Path, kind: str) -> Path:
    """A checkpoint that writes; a T5 starts with its padding, as the published ones do."""
    path = checkpoint(folder / kind, kind)
    if kind == "t5":
        settings = json.loads((path / "generation_config.json").read_text())
        (path / "generation_config.json").write_text(json.dumps(settings | {"decoder_start_token_id": 0}))
    return path


def loaded(path: Path, temperature: float = 1.0, seed: int = 0, max_tokens: int = 6) -> LocalModel:
    return LocalModel.named(str(path), temperature=temperature, seed=seed, max_tokens=max_tokens)


def replies(model: LocalModel, prompts: list[str], wanted: int = 3) -> list[Reply]:
    found = dict(model.replies(prompts, wanted))
    return [found[place] for place in range(len(prompts))]


@pytest.mark.parametrize("kind", ["t5", "llama"])
def test_a_reply_depends_on_its_prompt_and_the_seed_alone(kind: str, tmp_path: Path) -> None:
    path = writer(tmp_path, kind)
    model = loaded(path)
    before = torch.random.get_rng_state()
    found = replies(model, PROMPTS)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert replies(model, PROMPTS[::-1])[::-1] == found
    assert replies(loaded(path), PROMPTS[2:]) == found[2:]
    assert replies(loaded(path, seed=1), PROMPTS) != found
    assert len({reply.text for reply in found}) == 4
    for reply in found:
        lines = reply.text.split("\n")
        assert len(lines) == (3 if kind == "t5" else 1)
        assert reply.reply_tokens is not None
        assert 0 < reply.reply_tokens <= 6 * len(lines)
    # "<s> the cell grows" and, for the encoder, "</s>".
    assert found[0].prompt_tokens == (5 if kind == "t5" else 4)


def test_greedy_is_the_best_token_each_time(tmp_path: Path) -> None:
    path = checkpoint(tmp_path / "llama", "llama")
    tokenizer, model = AutoTokenizer.from_pretrained(path), AutoModelForCausalLM.from_pretrained(path).eval()
    ids = tokenizer(PROMPTS[0])["input_ids"]
    wanted = list(ids)
    with torch.inference_mode():
        for _ in range(6):
            wanted.append(int(model(torch.tensor([wanted])).logits[0, -1].argmax()))
            if wanted[-1] == model.generation_config.eos_token_id:
                break
    (reply,) = replies(loaded(path, temperature=0), PROMPTS[:1])
    assert reply.text == tokenizer.decode(wanted[len(ids) :], skip_special_tokens=True)
    assert reply.finish == ("length" if len(wanted) == len(ids) + 6 else "stop")
    (one,) = replies(loaded(writer(tmp_path, "t5"), temperature=0), PROMPTS[:1])
    assert "\n" not in one.text  # three draws without chance would be three times the same


def test_what_is_drawn_has_the_probabilities_of_the_model() -> None:
    # At temperature 2 the logits ln(16), ln(4), 0 are ln(4), ln(2), 0: probabilities 4/7, 2/7, 1/7.
    logits = torch.tensor([[16.0, 4.0, 1.0]]).log().expand(40_000, 3)
    drawn = _draw(torch.Generator().manual_seed(0), 2.0)(None, logits).argmax(dim=-1)
    shares = torch.bincount(drawn, minlength=3) / 40_000
    # A standard error is at most sqrt(0.25 / 40,000) = 0.0025.
    assert torch.allclose(shares, torch.tensor([4 / 7, 2 / 7, 1 / 7]), atol=0.01)
    many = torch.arange(12.0).expand(5_000, 12) / 100
    drawn = _draw(torch.Generator().manual_seed(0), 1.0)(None, many).argmax(dim=-1)
    assert set(drawn.tolist()) == set(range(2, 12))  # the ten best


def test_a_chat_template_is_used(tmp_path: Path) -> None:
    path = checkpoint(tmp_path / "qwen2", "qwen2")
    plain = replies(loaded(path), ["hi"])[0]
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = (
        "{% for message in messages %}<{{ message.role }}>{{ message.content }}{% endfor %}"
        "{% if add_generation_prompt %}<a>{% endif %}{% if enable_thinking is false %}!{% endif %}"
    )
    tokenizer.save_pretrained(path)
    chat = replies(loaded(path), ["hi"])[0]
    # A token a byte: "hi" and "<user>hi<a>!".
    assert (plain.prompt_tokens, chat.prompt_tokens) == (2, 12)
    assert plain.text != chat.text


def test_what_does_not_fit_is_not_cut(tmp_path: Path) -> None:
    # 64 tokens at most, one of them "<s>": 57 words and 6 new tokens fit, 58 do not.
    model = loaded(checkpoint(tmp_path / "llama", "llama"))
    fits, not_fits = replies(model, [" ".join(["cell"] * 57), " ".join(["cell"] * 58)])
    assert fits.finish != "too long"
    assert not_fits == Reply("", "too long")


def test_models_that_do_not_write(tmp_path: Path) -> None:
    for kind, name in (("bert", "BertModel"), ("mlm", "BertForMaskedLM")):
        path = checkpoint(tmp_path / kind, kind)
        with pytest.raises(
            EmbedtrainError, match=rf"writes no text \(it is a {name}\); --generate needs a causal or"
        ):
            loaded(path)
    with pytest.raises(EmbedtrainError, match=r"does not say with which token it starts .*decoder_start_token_id"):
        loaded(checkpoint(tmp_path / "t5", "t5"))
    path = checkpoint(tmp_path / "headless", "llama")
    settings = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(settings | {"num_hidden_layers": 3}))
    with pytest.raises(EmbedtrainError, match=r"lacks \d+ weights, model\.layers\.2\..* it would write noise"):
        loaded(path)
    (path / "config.json").write_text("{")
    with pytest.raises(EmbedtrainError, match=r"has no config\.json that can be read"):
        loaded(path)
    (path / "config.json").write_text(json.dumps(settings | {"model_type": "other"}))
    with pytest.raises(EmbedtrainError, match="cannot be loaded: "):
        loaded(path)
    with pytest.raises(EmbedtrainError, match="does not exist; give a model folder or a hub name"):
        open_writer(GenerateOptions(generate=str(tmp_path / "none")))
    with pytest.raises(UsageError, match="--generate-model names a model of a server"):
        open_writer(GenerateOptions(generate=str(path), generate_model="x"))


def test_pairs_of_a_local_model_come_from_the_cache_the_second_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMBEDTRAIN_CACHE", str(tmp_path / "cache"))
    documents = Texts(["a", "b"], None, PROMPTS[:2])
    path = writer(tmp_path, "t5")
    options = GenerateOptions(generate=str(path), prompt="plain", generate_tokens=8, temperature=1.0, round_trip=0)

    def made(options: GenerateOptions) -> tuple[list[str], dict[str, int], list[str], list[str]]:
        draft, said = Draft(), []
        for row, identifier in enumerate(documents.ids):
            draft.add_document(identifier, Document("", documents.body(row), {}))
        generate(documents, options, draft, lambda *told: said.append(told[0]))
        queries = [query.text for _, _, query in draft.queries()]
        return queries, dict(draft.dropped), list(draft.notes), said

    first, second = made(options), made(options)
    assert first[:3] == second[:3]
    assert len(first[0]) >= 2
    assert first[3] == ["ask t5 for queries"] * 3 + ["read replies"]
    assert second[3] == ["read replies"]
    # Other weights in a folder of the same name are another model.
    model = AutoModelForSeq2SeqLM.from_pretrained(path)
    with torch.no_grad():
        next(model.parameters()).add_(0.5)
    model.save_pretrained(path)
    assert made(options)[3] == first[3]
    assert made(replace(options, seed=3))[3] == first[3]


def test_a_model_and_bm25_find_documents_again() -> None:
    if not find_packaged():
        pytest.skip("the packaged MiniLM is not installed")
    corpus = Texts(
        ["a", "b", "c"],
        None,
        ["The cat sleeps on the sofa.", "Stock markets fell sharply today.", "Bake the bread for forty minutes."],
    )
    # Words of its own document; other words for it; words of another document.
    pairs = [
        ("where the cat sleeps", 0),
        ("shares lost value", 1),
        ("time in the oven", 2),
        ("cat on the sofa", 1),
    ]
    told: list[str] = []
    finders = open_finders(["bm25", MINILM], corpus, "english", lambda what, *_: told.append(what))
    assert [finder.name for finder in finders] == ["BM25 (english)", MINILM]
    lexical, dense = ([found_again(pairs, [finder], 1, "any", lambda *_: None).tolist()] for finder in finders)
    assert lexical == [[True, False, False, False]]
    assert dense == [[True, True, True, False]]
    assert found_again(pairs, finders, 1, "any", lambda *_: None).tolist() == [True, True, True, False]
    assert found_again(pairs, finders, 1, "all", lambda *_: None).tolist() == [True, False, False, False]
    assert found_again(pairs, finders, 3, "any", lambda *_: None).tolist() == [True] * 4
    assert f"encode documents with {MINILM}" in told


def find_packaged() -> bool:
    try:
        find_model(MINILM)
    except EmbedtrainError:
        return False
    return True
