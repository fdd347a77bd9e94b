"""Every loss against the obvious loop, columns and rows physically removed, itself in blocks, and half precision.

Deliberate breaks that turn a test here red: any mask ignored or by zero instead of -inf, an own document left in
document->document, hardness with a gradient, KL the other way round, an absent teacher vector that reaches a sum,
a block's rows matched with the first block's columns, a zero vector divided by its length.
"""

from dataclasses import fields, replace

import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from loss_cases import BUSY, random_batch
from loss_oracles import ORACLES
from torch import Tensor

from embedtrain import losses
from embedtrain.losses import Inputs, Settings

torch.set_num_threads(1)

CASES = [
    *BUSY.items(),
    ("infonce", Settings(0.3)),
    ("infonce", Settings(0.3, directions=("d2q", "q2d"))),
    ("infonce", Settings(0.3, directions=losses.DIRECTIONS, joint=True)),
    ("infonce", Settings(0.3, directions=("q2d", "d2d"), joint=True, hardness=1.0)),
    ("kl", Settings(0.3)),
    ("margin-mse", Settings(0.3)),
]
NAMES = [f"{name}-{place}" for place, (name, _) in enumerate(CASES)]


def leaves(batch: Inputs) -> Inputs:
    """The same batch with fresh vectors that gather gradients."""
    return replace(
        batch,
        queries=batch.queries.detach().clone().requires_grad_(),
        documents=batch.documents.detach().clone().requires_grad_(),
    )


def gradients(value: Tensor, batch: Inputs) -> list[Tensor]:
    return list(torch.autograd.grad(value.sum(), [batch.queries, batch.documents], materialize_grads=True))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("name", "settings"), CASES, ids=NAMES)
def test_value_and_gradient_equal_the_obvious_loop(name: str, settings: Settings, seed: int) -> None:
    batch = leaves(random_batch(seed))
    fast = losses.LOSSES[name](batch, settings)
    slow = torch.stack([ORACLES[name](batch, settings, row) for row in range(batch.rows)])
    assert fast.shape == (batch.rows,)
    assert torch.allclose(fast, slow, atol=1e-12)
    for ours, theirs in zip(gradients(fast, batch), gradients(slow, batch), strict=True):
        assert torch.isfinite(ours).all()
        assert torch.allclose(ours, theirs, atol=1e-11)
        assert not ours[~batch.present].any() if ours.ndim == 3 else True


@pytest.mark.parametrize(("name", "settings"), CASES, ids=NAMES)
def test_gradient_is_that_of_finite_differences(name: str, settings: Settings) -> None:
    batch = random_batch(11)
    if settings.hardness:
        # A stopped gradient is none that differences could see; the loop above has it.
        settings = replace(settings, hardness=0.0)

    def function(queries: Tensor, documents: Tensor) -> Tensor:
        return losses.LOSSES[name](replace(batch, queries=queries, documents=documents), settings)

    fresh = leaves(batch)
    assert torch.autograd.gradcheck(function, (fresh.queries, fresh.documents))


@pytest.mark.parametrize(("name", "settings"), CASES, ids=NAMES)
def test_every_loss_has_something_to_say_in_these_batches(name: str, settings: Settings) -> None:
    batch = leaves(random_batch(0))
    queries, documents = gradients(losses.LOSSES[name](batch, settings), batch)
    assert queries.abs().max() > 1e-3
    assert documents.abs().max() > 1e-3


def without_row(batch: Inputs, gone: int) -> Inputs:
    rows = [row for row in range(batch.rows) if row != gone]
    columns = [row * batch.width + column for row in rows for column in range(batch.width)]
    cut: dict[str, Tensor] = {}
    for name in ("mask", "positives"):
        cut[name] = getattr(batch, name)[rows][:, columns]
    for name in ("query_mask", "reverse_mask"):
        cut[name] = getattr(batch, name)[rows][:, rows]
    for name in (
        *("queries", "documents", "present", "negative", "labels"),
        *("teacher", "teacher_queries", "teacher_documents"),
    ):
        cut[name] = getattr(batch, name)[rows]
    return replace(batch, **cut)


@pytest.mark.parametrize(("name", "settings"), CASES, ids=NAMES)
def test_a_row_masked_for_the_others_equals_the_row_removed(name: str, settings: Settings) -> None:
    whole, gone = random_batch(5), 2
    others = [row for row in range(whole.rows) if row != gone]
    mask, positives = whole.mask.clone(), whole.positives.clone()
    query_mask, reverse_mask = whole.query_mask.clone(), whole.reverse_mask.clone()
    labels = whole.labels.clone() if whole.labels is not None else None
    theirs = slice(gone * whole.width, (gone + 1) * whole.width)
    mask[others, theirs] = positives[others, theirs] = False
    query_mask[others, gone] = reverse_mask[others, gone] = False
    assert labels is not None
    labels[gone] = 99
    present = whole.present.clone()
    if name == "score":
        # It looks at every present column, masked or not.
        present[gone, 1:] = False
    hidden = leaves(
        replace(
            whole,
            mask=mask,
            positives=positives,
            query_mask=query_mask,
            reverse_mask=reverse_mask,
            labels=labels,
            present=present,
            negative=whole.negative & present,
        )
    )
    removed = leaves(without_row(whole, gone))
    values, fewer = losses.LOSSES[name](hidden, settings)[others], losses.LOSSES[name](removed, settings)
    if name == "score":
        # The row's positive is present by law: it leaves by arithmetic instead.
        error = (hidden.queries @ hidden.documents[gone, 0] - _wanted(hidden, gone))[others] ** 2
        count = hidden.present.sum()
        values = (values * count - error) / (count - 1)
    assert torch.allclose(values, fewer, atol=1e-12)
    for ours, theirs_ in zip(gradients(values, hidden), gradients(fewer, removed), strict=True):
        assert torch.allclose(ours[others], theirs_, atol=1e-11)
        assert ours[gone].abs().max() < 1e-12


def _wanted(batch: Inputs, row: int) -> Tensor:
    assert batch.teacher_queries is not None
    assert batch.teacher_documents is not None
    return batch.teacher_queries @ batch.teacher_documents[row, 0]


@pytest.mark.parametrize(("name", "settings"), CASES, ids=NAMES)
def test_an_absent_column_equals_the_column_removed(name: str, settings: Settings) -> None:
    whole = random_batch(8)
    last = whole.width - 1
    present, mask, positives = whole.present.clone(), whole.mask.clone(), whole.positives.clone()
    present[:, last] = False
    mask[:, last :: whole.width] = positives[:, last :: whole.width] = False
    assert whole.teacher is not None
    assert whole.teacher_documents is not None
    hidden = leaves(
        replace(whole, present=present, negative=whole.negative & present, mask=mask, positives=positives)
    )
    kept = [column for column in range(whole.rows * whole.width) if column % whole.width != last]
    removed = leaves(
        replace(
            whole,
            documents=whole.documents[:, :last],
            present=whole.present[:, :last],
            negative=whole.negative[:, :last],
            mask=mask[:, kept],
            positives=positives[:, kept],
            teacher=whole.teacher[:, :last],
            teacher_documents=whole.teacher_documents[:, :last],
        )
    )
    values, fewer = losses.LOSSES[name](hidden, settings), losses.LOSSES[name](removed, settings)
    assert torch.allclose(values, fewer, atol=1e-12)
    ours, theirs = gradients(values, hidden), gradients(fewer, removed)
    assert torch.allclose(ours[0], theirs[0], atol=1e-11)
    assert torch.allclose(ours[1][:, :last], theirs[1], atol=1e-11)
    assert not ours[1][:, last].any()


@pytest.mark.parametrize("block", [1, 30, 100])
@pytest.mark.parametrize(("name", "settings"), CASES, ids=NAMES)
def test_blocks_change_nothing(name: str, settings: Settings, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = leaves(random_batch(3, rows=5))
    temperature = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    settings = replace(settings, temperature=temperature)
    inside = [batch.queries, batch.documents, temperature]

    def measure() -> list[Tensor]:
        value = losses.LOSSES[name](batch, settings)
        return [value, *torch.autograd.grad(value.sum(), inside, materialize_grads=True)]

    whole = measure()
    monkeypatch.setattr("embedtrain.losses.inputs.BLOCK", block)
    for ours, theirs in zip(measure(), whole, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-12)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("name", "settings"), CASES, ids=NAMES)
def test_half_precision_is_computed_in_float32(name: str, settings: Settings, kind: torch.dtype) -> None:
    batch = random_batch(2)
    half = replace(batch, queries=batch.queries.to(kind), documents=batch.documents.to(kind))
    same = replace(half, queries=half.queries.float(), documents=half.documents.float())
    settings = replace(settings, dimensions=(6, 2))
    value = losses.combined({name: 1.0}, half, settings)[name]
    assert value.dtype == torch.float32
    assert torch.equal(value, losses.combined({name: 1.0}, same, settings)[name])
    # A caller's autocast does not reach the scores.
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(value, losses.combined({name: 1.0}, same, settings)[name])


@pytest.mark.parametrize(("name", "settings"), CASES, ids=NAMES)
def test_zero_vectors_give_no_nan_p48(name: str, settings: Settings) -> None:
    batch = leaves(random_batch(6))
    with torch.no_grad():
        batch.queries[0] = 0
        batch.documents[0] = 0
        batch.documents[2, 0] = 0
        # Only the prefix of this one is zero.
        batch.queries[3, :2] = 0
    settings = replace(settings, dimensions=(6, 2), gor=1.0)
    parts = losses.combined({name: 1.0}, batch, settings)
    total = losses.total({name: 1.0}, parts, settings)
    assert torch.isfinite(total)
    for found in gradients(total, batch):
        assert torch.isfinite(found).all()
        assert found.abs().max() < 1e3


@hypothesis_settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.permutations(range(5)), st.sampled_from(CASES))
def test_the_order_of_rows_is_no_matter(seed: int, order: list[int], case: tuple[str, Settings]) -> None:
    name, settings = case
    batch = random_batch(seed, rows=5)
    columns = [row * batch.width + column for row in order for column in range(batch.width)]
    moved: dict[str, Tensor] = {field.name: getattr(batch, field.name)[order] for field in fields(batch)}
    moved |= {name: moved[name][:, columns] for name in ("mask", "positives")}
    moved |= {name: moved[name][:, order] for name in ("query_mask", "reverse_mask")}
    values = losses.LOSSES[name](batch, settings)
    assert torch.allclose(losses.LOSSES[name](Inputs(**moved), settings), values[order], atol=1e-12)
    assert values.min() > -1e-12
    assert losses.curve(Inputs(**moved), settings) == pytest.approx(losses.curve(batch, settings))
