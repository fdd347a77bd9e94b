"""A language model on this machine: a transformers seq2seq model (doc2query) or a causal one, by folder or name.

A prompt is computed on its own and drawn from a generator made of the seed and the prompt, so that a reply depends
on neither its neighbours nor on what was asked before. For many documents and a large model a server is faster: it
computes many prompts at once.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from embedtrain.errors import EmbedtrainError
from embedtrain.harvest.generated.replies import Reply
from embedtrain.models import ModelSource, find_model
from embedtrain.store import text_key

if TYPE_CHECKING:  # torch is loaded where a model is asked for
    import torch

# Words are drawn among so many: doc2query samples so (Nogueira and Lin, "From doc2query to docTTTTTquery", 2019).
_TOP = 10
_WRITES = ("ForCausalLM", "LMHeadModel")
# A tokenizer that knows of no limit says a very large number.
_NO_LIMIT = 1 << 20


class LocalModel:
    """A model that writes text. What a seq2seq model writes is one query; it is asked several times."""

    def __init__(self, source: ModelSource, *, temperature: float, seed: int, max_tokens: int) -> None:
        """Load it. Raises EmbedtrainError for a model that writes no text, lacks weights or cannot be read."""
        import torch

        from embedtrain.encoder import default_device, quiet_loading

        self._check(source)
        self.device = default_device()
        dtype = torch.bfloat16 if self.device.type == "cuda" else torch.float32
        try:
            with quiet_loading():
                self._tokenizer, self._model = self._load(source, dtype)
        except EmbedtrainError:
            raise
        except Exception as error:  # a broken folder breaks in as many ways as there are libraries under it
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            raise EmbedtrainError(f"model {source.name} cannot be loaded: {reason}") from error
        self._model.to(self.device).eval()
        self._seed = seed
        self.name = source.name
        self.settings: Mapping[str, Any] = {"temperature": temperature, "seed": seed, "max_tokens": max_tokens}
        self.identity: Mapping[str, Any] = {
            "weights and settings": source.sha256,
            "precision": str(dtype),
            "top": _TOP,
        }

    @classmethod
    def named(cls, name: str, *, temperature: float, seed: int, max_tokens: int) -> "LocalModel":
        """Find a model by folder or hub name and load it. Raises EmbedtrainError as both do."""
        return cls(find_model(name), temperature=temperature, seed=seed, max_tokens=max_tokens)

    def _check(self, source: ModelSource) -> None:
        path = source.path / "config.json"
        try:
            settings = json.loads(path.read_text("utf-8"))
            architectures = [str(name) for name in settings.get("architectures") or []]
        except (OSError, ValueError, AttributeError) as error:
            raise EmbedtrainError(
                f"model {source.name} has no config.json that can be read; give a whole folder"
            ) from error
        self.one_query_each = bool(settings.get("is_encoder_decoder"))
        if not self.one_query_each and not any(name.endswith(_WRITES) for name in architectures):
            is_a = f" (it is a {architectures[0]})" if architectures else ""
            raise EmbedtrainError(
                f"model {source.name} writes no text{is_a}; --generate needs a causal or a seq2seq "
                "model, as doc2query"
            )

    def _load(self, source: ModelSource, dtype: "torch.dtype") -> tuple[Any, Any]:
        from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer

        kind: Any = AutoModelForSeq2SeqLM if self.one_query_each else AutoModelForCausalLM
        tokenizer = AutoTokenizer.from_pretrained(source.path, local_files_only=True)
        model, report = kind.from_pretrained(
            source.path, dtype=dtype, local_files_only=True, output_loading_info=True
        )
        if missing := sorted(report["missing_keys"]):
            raise EmbedtrainError(
                f"model {source.name} lacks {len(missing)} weights, {missing[0]} among them: it would write "
                "noise; give a model that was trained to write"
            )
        starts = model.generation_config
        if self.one_query_each and starts.decoder_start_token_id is None and starts.bos_token_id is None:
            raise EmbedtrainError(
                f"model {source.name} does not say with which token it starts to write; put "
                "decoder_start_token_id into its generation_config.json (T5 starts with its pad token)"
            )
        return tokenizer, model

    def replies(self, prompts: Sequence[str], wanted: int) -> Iterator[tuple[int, Reply]]:
        """(place of the prompt, reply) in the order of the prompts; of a seq2seq model `wanted` lines."""
        for place, prompt in enumerate(prompts):
            yield place, self._reply(prompt, wanted if self.one_query_each else 1)

    def _reply(self, prompt: str, draws: int) -> Reply:
        import torch
        from transformers import LogitsProcessorList

        from embedtrain.encoder import quiet_loading

        ids = self._ids(prompt)
        most, limit = int(self.settings["max_tokens"]), self._limit()
        if len(ids) + (0 if self.one_query_each else most) > limit:
            return Reply("", "too long")
        greedy = not self.settings["temperature"]
        draws = 1 if greedy else draws  # they would all be the same
        inputs = torch.tensor([ids] * draws, device=self.device)
        processors = LogitsProcessorList(
            [] if greedy else [_draw(self._generator(prompt), float(self.settings["temperature"]))]
        )
        with torch.inference_mode(), quiet_loading():
            made = self._model.generate(
                input_ids=inputs,
                attention_mask=torch.ones_like(inputs),
                generation_config=self._how(most),
                logits_processor=processors,
            ).tolist()
        ends = self._ends()
        rows = [row[1:] if self.one_query_each else row[len(ids) :] for row in made]
        lengths = [next((place + 1 for place, token in enumerate(row) if token in ends), len(row)) for row in rows]
        texts = [
            self._tokenizer.decode(row[:length], skip_special_tokens=True)
            for row, length in zip(rows, lengths, strict=True)
        ]
        if self.one_query_each:
            texts = [" ".join(text.split()) for text in texts]
        whole = all(row[length - 1] in ends for row, length in zip(rows, lengths, strict=True) if length)
        return Reply("\n".join(texts), "stop" if whole else "length", len(ids), sum(lengths))

    def _ids(self, prompt: str) -> list[int]:
        if self.one_query_each or not getattr(self._tokenizer, "chat_template", None):
            return list(self._tokenizer(prompt, verbose=False)["input_ids"])
        # A model that can think would fill the reply with it; templates that know nothing of that pass it over.
        said = self._tokenizer.apply_chat_template(
            [{"role": "user", "content": prompt}],
            add_generation_prompt=True,
            tokenize=False,
            enable_thinking=False,
        )
        return list(self._tokenizer(said, add_special_tokens=False, verbose=False)["input_ids"])

    def _limit(self) -> int:
        """Tokens a prompt (of a causal model, with its reply) may have."""
        own = min(int(self._tokenizer.model_max_length), _NO_LIMIT)
        positions = getattr(self._model.config, "max_position_embeddings", None)
        return min(own, positions) if isinstance(positions, int) else own

    def _ends(self) -> set[int]:
        ends = self._model.generation_config.eos_token_id
        ends = self._tokenizer.eos_token_id if ends is None else ends
        return set(ends) if isinstance(ends, list) else {ends}

    def _how(self, most: int) -> Any:
        """No drawing by the library; tokens of start and end, and penalties, are the model's own."""
        from transformers import GenerationConfig

        ends = sorted(end for end in self._ends() if end is not None)
        own = self._model.generation_config.pad_token_id
        pad = self._tokenizer.pad_token_id if own is None else own
        return GenerationConfig(
            do_sample=False,
            num_beams=1,
            num_return_sequences=1,
            max_new_tokens=most,
            eos_token_id=ends or None,
            pad_token_id=(ends or [0])[0] if pad is None else pad,
        )

    def _generator(self, prompt: str) -> "torch.Generator":
        import torch

        seed = int.from_bytes(text_key(f"{self._seed}\0{prompt}")[:7], "big")
        return torch.Generator().manual_seed(seed)


def _draw(generator: "torch.Generator", temperature: float) -> Any:
    """A processor of logits (draws, vocabulary): the largest is then a draw from softmax(logits / temperature).

    The best `_TOP` get Gumbel noise, -log(-log(u)) with u uniform, the others leave: the argmax of logits with
    such noise is a sample of their softmax (Gumbel, 1954; Maddison et al., "A* Sampling", NeurIPS 2014, eq. 1).
    The noise comes from a generator of its own, which sampling in the library does not take.
    """
    import torch
    from transformers import LogitsProcessor

    class Draw(LogitsProcessor):
        def __call__(self, input_ids: torch.LongTensor, scores: torch.Tensor) -> torch.Tensor:
            count = min(_TOP, scores.shape[-1])
            best, places = scores.float().topk(count, dim=-1)
            uniform = torch.rand(best.shape, generator=generator).clamp_min(1e-20).to(best.device)
            noisy = best / temperature - torch.log(-torch.log(uniform))
            return torch.full_like(scores, -torch.inf, dtype=torch.float32).scatter(-1, places, noisy)

    return Draw()
