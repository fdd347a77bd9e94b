"""The training loop: every step once, checked, the best kept, ended in time, and after a kill the same bytes.

Breaks that turn a test red: gradients not unscaled; an overflowed step taken; the best weights not put back; a step
seeded from the clock; dev values forgotten by a checkpoint; a checkpoint, or its best weights, removed before the next
one has its name; time before a kill not counted; a schedule that is one step short; the ids of a step's rows not named.
"""

import dataclasses
import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from conftest import ROOT
from torch import nn

from embedtrain import checkpoints, loop
from embedtrain.console import silent
from embedtrain.errors import EmbedtrainError, UsageError

torch.set_num_threads(1)


@dataclasses.dataclass(frozen=True)
class Options:
    learning_rate: float = 0.05
    warmup: float = 0.1
    weight_decay: float = 0.01
    epochs: float = 3.0
    seed: int = 1


def model_and_step(dropout: float = 0.3) -> tuple[nn.Sequential, loop.TakeStep]:
    """A small model with dropout, and a step whose data and target depend on its place in training."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(dropout), nn.Linear(8, 1)).train()
        data = torch.randn(5, 6, 4)

    def take_step(epoch: int, step: int, scale: float) -> loop.StepResult:
        value = (model(data[step]) - epoch).square().mean()
        (value * scale).backward()
        return loop.StepResult(value.detach(), {"tokens": 60}, [f"q{6 * step + row}" for row in range(6)])

    return model, take_step


def train(workspace: Path, take_step: loop.TakeStep, model: nn.Module, options: Options | None = None, **more):
    settings = {"steps_per_epoch": 5, "progress": silent, **more}
    return loop.run(model, take_step, options or Options(), what="train", workspace=workspace, **settings)


@pytest.fixture
def every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint after each step."""
    monkeypatch.setattr(checkpoints.Checkpoints, "due", lambda self, unsaved, last=False: True)


def same_weights(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


class Clock:
    """Seconds that pass only when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_every_step_is_taken_once_and_weights_move(tmp_path: Path) -> None:
    model, step = model_and_step()
    before = model[0].weight.detach().clone()
    curve = train(tmp_path, step, model)
    assert [entry["step"] for entry in curve.steps] == list(range(1, 16))
    assert {entry["rows"] for entry in curve.steps} == {6}
    assert (model[0].weight - before).abs().max() > 0
    assert curve.notes() == []


def test_ten_rows_in_fours_are_nine_steps_with_a_rate_each_p47(tmp_path: Path) -> None:
    model, step = model_and_step()  # 10 rows in batches of 4 with the rest: 3 steps an epoch
    curve = train(tmp_path, step, model, Options(warmup=0.0), steps_per_epoch=3)
    rates = [entry["lr"] for entry in curve.steps]
    assert rates == pytest.approx([0.05 * (9 - n) / 9 for n in range(9)])


def test_no_step_at_all_is_refused_p47(tmp_path: Path) -> None:
    model, step = model_and_step()
    with pytest.raises(UsageError, match=r"--epochs 0\.01 of 5 steps are no step"):
        train(tmp_path, step, model, Options(epochs=0.01))
    with pytest.raises(UsageError, match="of 0 steps"):
        train(tmp_path, step, model, steps_per_epoch=0)


@pytest.mark.parametrize("options", [Options(learning_rate=1e-20), Options()])
def test_training_that_changes_nothing_is_said_p47_p41(tmp_path: Path, options: Options) -> None:
    model, step = model_and_step()

    def nothing(epoch: int, number: int, scale: float) -> loop.StepResult:
        result = step(epoch, number, scale)
        if options.learning_rate > 1e-3:  # a batch of 1 without negatives: the loss is exactly 0
            for parameter in model.parameters():
                parameter.grad = torch.zeros_like(parameter)
        return result

    why = "no step had a gradient" if options.learning_rate > 1e-3 else "the learning rate is too small"
    with pytest.raises(EmbedtrainError, match=f"15 steps left the model as it was: {why}"):
        train(tmp_path, nothing, model, options)


def test_stopped_after_7_of_15_steps_8_follow_p63(tmp_path: Path, every_step: None) -> None:
    model, step = model_and_step()
    undisturbed: list[str] = []

    def logged(take: loop.TakeStep, log: list[str], last: float = math.inf) -> loop.TakeStep:
        # Two rows of ten a step, in an order of its own each epoch.
        def take_step(epoch: int, number: int, scale: float) -> loop.StepResult:
            if len(log) >= 2 * last:
                raise KeyboardInterrupt
            log.extend(str((3 * (2 * number + k) + epoch) % 10) for k in (0, 1))
            return take(epoch, number, scale)

        return take_step

    whole = train(tmp_path / "whole", logged(step, undisturbed), model)
    other, step = model_and_step()
    log: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "cut", logged(step, log, last=7), other)
    assert len(log) == 14
    fresh, step = model_and_step()
    more: list[str] = []
    resumed = train(tmp_path / "cut", logged(step, more), fresh)
    assert len(more) == 2 * 8
    assert log + more == undisturbed
    assert all((log + more).count(str(row)) == 3 for row in range(10))
    assert resumed.steps == whole.steps
    assert [list(entry) for entry in resumed.steps] == [list(entry) for entry in whole.steps]
    assert same_weights(model, fresh)
    resumed.write(tmp_path / "metrics.jsonl")
    assert [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()] == whole.steps


@pytest.mark.parametrize("lower", [False, True])
def test_the_best_evaluation_is_kept_p65(tmp_path: Path, lower: bool) -> None:
    model, step = model_and_step()
    values = iter([1.0, 0.8, 0.9] if lower else [0.5, 0.7, 0.6])
    seen = []

    def evaluate() -> float:
        seen.append(model[0].weight.detach().clone())
        return next(values)

    curve = train(
        tmp_path,
        step,
        model,
        Options(epochs=0.6),
        dev=loop.Dev(evaluate, every=1, lower_is_better=lower),
    )
    assert [value.step for value in curve.dev] == [1, 2, 3]
    assert curve.best == 1
    assert curve.dev[1].value == (0.8 if lower else 0.7)
    assert [entry["dev"] for entry in curve.steps] == [value.value for value in curve.dev]
    assert torch.equal(model[0].weight, seen[1])
    assert not torch.equal(model[0].weight, seen[2])


def test_each_epoch_and_the_last_step_are_measured(tmp_path: Path) -> None:
    for epochs, steps in ((2.0, [5, 10]), (0.4, [2]), (1.4, [5, 7])):
        model, step = model_and_step()
        curve = train(tmp_path / str(epochs), step, model, Options(epochs=epochs), dev=loop.Dev(lambda: 1.0))
        assert [value.step for value in curve.dev] == steps
        assert curve.best == 0  # the first of equal ones


def test_training_that_only_harms_leaves_the_model_as_it_was(tmp_path: Path) -> None:
    model, step = model_and_step()
    base, _ = model_and_step()
    values = iter([0.5, 0.4, 0.3, 0.2])
    curve = train(tmp_path, step, model, dev=loop.Dev(lambda: next(values), first=True))
    assert [value.step for value in curve.dev] == [0, 5, 10, 15]
    assert same_weights(model, base)
    assert curve.notes() == ["no dev value was better than the one before training: the model is as it was"]


def test_patience_ends_training_early(tmp_path: Path) -> None:
    model, step = model_and_step()
    values = iter([0.2, 0.5, 0.5, 0.4, 0.9])
    curve = train(tmp_path, step, model, dev=loop.Dev(lambda: next(values), every=3, patience=2))
    assert [value.step for value in curve.dev] == [3, 6, 9, 12]
    assert curve.notes() == ["stopped early after 12 of 15 steps: 2 evaluations without a gain"]


def test_a_dev_value_that_is_no_number_is_an_error(tmp_path: Path) -> None:
    model, step = model_and_step()
    with pytest.raises(EmbedtrainError, match="dev value after step 5 is not a number"):
        train(tmp_path, step, model, dev=loop.Dev(lambda: math.nan))


def spoiled(
    step: loop.TakeStep, model: nn.Module, when: Callable[[int, int, float], bool], loss: float | None = None
):
    """A step whose gradient is infinite at some places, and whose loss is `loss` there, if given."""

    def take_step(epoch: int, number: int, scale: float) -> loop.StepResult:
        result = step(epoch, number, scale)
        if when(epoch, number, scale):
            next(model.parameters()).grad[0, 0] = math.inf
            if loss is not None:
                return dataclasses.replace(result, loss=torch.tensor(loss))
        return result

    return take_step


def test_what_is_not_finite_stops_with_step_and_rows_and_the_last_checkpoint_stays_p48(
    tmp_path: Path, every_step: None
) -> None:
    for loss in (math.nan, None):
        model, step = model_and_step()
        bad = spoiled(step, model, lambda epoch, number, scale: (epoch, number) == (1, 1), loss)
        with pytest.raises(EmbedtrainError, match=r"step 7: the loss is .*queries q6, q7, q8, q9, q10 and 1 more"):
            train(tmp_path / str(loss), bad, model)
        assert all(torch.isfinite(p).all() for p in model.parameters())
        assert [path.name for path in (tmp_path / str(loss)).iterdir()] == ["step-000000006"]


def test_float16_skips_what_overflows_and_goes_on(tmp_path: Path) -> None:
    model, step = model_and_step()
    scales: list[float] = []

    def overflows(epoch: int, number: int, scale: float) -> bool:
        scales.append(scale)
        return scale > 2.0**14

    weights = []

    def take_step(epoch: int, number: int, scale: float) -> loop.StepResult:
        weights.append(model[0].weight.detach().clone())
        return spoiled(step, model, overflows)(epoch, number, scale)

    curve = train(tmp_path, take_step, model, float16=True)
    assert scales == [2.0**16, 2.0**15] + [2.0**14] * 13
    assert [entry["skipped"] for entry in curve.steps] == [1, 1] + [0] * 13
    assert torch.equal(weights[0], weights[2])
    assert not torch.equal(weights[2], weights[3])
    assert curve.steps[0]["gradient_norm"] is None
    assert curve.notes() == ["2 of 15 steps were skipped: their float16 gradients overflowed"]


def test_a_scale_changes_nothing_else(tmp_path: Path) -> None:
    # Powers of two: scaled and not, every number of every step is the same to the last bit.
    plain, step = model_and_step()
    one = train(tmp_path / "plain", step, plain)
    scaled, step = model_and_step()
    two = train(tmp_path / "scaled", step, scaled, float16=True)
    keys = ("loss", "gradient_norm")
    assert [[entry[k] for k in keys] for entry in one.steps] == [[entry[k] for k in keys] for entry in two.steps]
    assert same_weights(plain, scaled)


def test_float16_ends_where_no_scale_helps_p48(tmp_path: Path) -> None:
    model, step = model_and_step()
    with pytest.raises(EmbedtrainError, match=r"step 17: .*gradient norm inf"):
        train(tmp_path, spoiled(step, model, lambda *place: True), model, Options(epochs=9.0), float16=True)
    model, step = model_and_step()
    with pytest.raises(EmbedtrainError, match="step 1: the loss is nan"):  # no scale makes that finite
        train(tmp_path, spoiled(step, model, lambda *place: True, math.nan), model, float16=True)


def test_time_ends_training_before_it_is_over(tmp_path: Path) -> None:
    # 100 s a step, 50 s an evaluation (one before training), a tenth of a minute for nothing: of 600 s, after the
    # first 50, five steps are 550 and leave 50 for the last evaluation; a sixth would not.
    clock = Clock()
    model, step = model_and_step()

    def slow(epoch: int, number: int, scale: float) -> loop.StepResult:
        clock.now += 100
        return step(epoch, number, scale)

    def evaluate() -> float:
        clock.now += 50
        return clock.now  # better each time

    dev = loop.Dev(evaluate, every=100)
    curve = train(tmp_path, slow, model, dev=dev, max_minutes=10.01, clock=clock)
    assert [entry["step"] for entry in curve.steps] == [1, 2, 3, 4, 5]
    assert [value.step for value in curve.dev] == [0, 5]
    assert clock.now == 600
    assert curve.notes() == ["stopped after 5 of 15 steps: the time of --max-minutes was over"]
    # The rates are those of the whole plan: warm-up over two steps of 15, then down.
    assert [entry["lr"] for entry in curve.steps] == pytest.approx(
        [0.05 * f for f in (1 / 3, 2 / 3, 1, 12 / 13, 11 / 13)]
    )
    model, step = model_and_step()
    clock.now = 0
    more = train(
        tmp_path / "merge", slow, model, dev=dataclasses.replace(dev, after=2), max_minutes=10.01, clock=clock
    )
    assert len(more.steps) == 4  # two more evaluations need the time of a step


def test_time_counts_over_restarts_and_from_the_start_of_the_command(tmp_path: Path, every_step: None) -> None:
    clock = Clock()
    model, step = model_and_step()

    def slow(epoch: int, number: int, scale: float) -> loop.StepResult:
        if (epoch, number) == (0, 4) and clock.now < 1_000:
            raise KeyboardInterrupt
        clock.now += 60
        return step(epoch, number, scale)

    limit = {"max_minutes": 7.01, "clock": clock}
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, slow, model, **limit)
    clock.now = 5_000  # the machine was down; 4 minutes were spent, and 3 are left, of which loading takes 1
    fresh, step = model_and_step()
    curve = train(tmp_path, slow, fresh, started=4_940.0, **limit)
    assert len(curve.steps) == 6
    # Killed after its end, before the output stood: it has ended.
    again, step = model_and_step()
    curve = train(tmp_path, slow, again, **limit)
    assert len(curve.steps) == 6
    assert same_weights(fresh, again)


class Two:
    """A second process, as the main one or the other; what the main one says is written down beforehand."""

    def __init__(self, main: bool, said: list[object]) -> None:
        self.main = main
        self.said = said
        self.waited = 0

    def wait(self) -> None:
        self.waited += 1

    def same(self, value: object) -> object:
        if self.main:
            self.said.append(value)
            return value
        return self.said.pop(0)


def test_the_others_wait_while_the_main_process_evaluates_and_write_nothing_p68(tmp_path: Path) -> None:
    said: list[object] = []
    values = iter([0.2, 0.9, 0.5])
    main, step = model_and_step()
    one = train(tmp_path / "a", step, main, dev=loop.Dev(lambda: next(values)), processes=Two(True, said))
    (tmp_path / "b").mkdir()
    for best in (tmp_path / "a").glob("best-10.*"):
        (tmp_path / "b" / best.name).write_bytes(best.read_bytes())  # a folder both see
    before = sorted((tmp_path / "b").iterdir())
    other, step = model_and_step()
    processes = Two(False, said)

    def never() -> float:
        raise AssertionError

    two = train(tmp_path / "b", step, other, dev=loop.Dev(never), processes=processes)
    assert two.dev == one.dev
    assert same_weights(main, other)
    assert sorted((tmp_path / "b").iterdir()) == before
    assert processes.waited == 1 + 3 + 1
    assert said == []


def test_processes_that_see_different_checkpoints_do_not_go_on(tmp_path: Path) -> None:
    model, step = model_and_step()
    with pytest.raises(EmbedtrainError, match="a folder that all share"):
        train(tmp_path, step, model, processes=Two(False, [7]))


def test_the_live_line_names_the_essentials(tmp_path: Path) -> None:
    clock, notes = Clock(), []
    model, step = model_and_step()

    def slow(epoch: int, number: int, scale: float) -> loop.StepResult:
        clock.now += 2
        result = step(epoch, number, scale)
        return dataclasses.replace(
            result, loss=torch.tensor(0.5), numbers={"tokens": 3_000, "accuracy": 0.875, "odd": math.nan}
        )

    curve = train(
        tmp_path,
        slow,
        model,
        Options(epochs=1.0),
        dev=loop.Dev(lambda: 0.71234),
        clock=clock,
        progress=lambda what, done, total, note: notes.append((done, total, note)),
    )
    assert notes[0] == (0, 5, "")
    assert notes[1] == (1, 5, "loss 0.5000, accuracy 87.5%, 1,500 tokens/s")
    assert notes[-1] == (5, 5, "loss 0.5000, accuracy 87.5%, 1,500 tokens/s, dev 0.7123")
    assert curve.steps[0]["odd"] is None
    assert not any("second" in name for name in curve.steps[0])  # no clock in what is kept


def test_a_tracker_gets_every_number_and_the_speed(tmp_path: Path) -> None:
    got: list[tuple[dict[str, float], int]] = []

    class Fake:
        def log(self, values, step):
            got.append((dict(values), step))

    clock = Clock()
    model, step = model_and_step()

    def slow(epoch: int, number: int, scale: float) -> loop.StepResult:
        clock.now += 2
        return step(epoch, number, scale)

    curve = train(
        tmp_path,
        slow,
        model,
        Options(epochs=1.0),
        dev=loop.Dev(lambda: 0.5, first=True),
        tracker=Fake(),
        clock=clock,
    )
    assert got[0] == ({"dev": 0.5}, 0)
    assert [step for _, step in got] == [0, 1, 2, 3, 4, 5, 5]
    assert got[1][0] == {"tokens_per_second": 30.0} | {k: v for k, v in curve.steps[0].items() if k != "step"}


def test_the_mean_loss_counts_rows_p42() -> None:
    from embedtrain.curve import Curve

    log2 = math.log(2)  # five rows in batches of 2, 2 and 1, all cosines equal
    entries = [{"loss": loss, "rows": rows} for loss, rows in ((log2, 2), (log2, 2), (0.0, 1))]
    assert Curve(3)._mean(entries) == pytest.approx(0.5545, abs=1e-4)
    assert Curve(3)._mean([{"loss": None, "rows": 2}, {"loss": 1.0, "rows": 1}]) == 1.0


def test_dropout_of_zero_is_evaluation_mode() -> None:
    model, _ = model_and_step()
    loop.set_dropout(model, 0.0)
    assert not model.training
    loop.set_dropout(model, 0.2)
    assert model.training
    assert model[1].p == 0.2


KILLED = """
import json, os, sys
from pathlib import Path
sys.path[:0] = {paths!r}
import test_loop, torch
from embedtrain import atomic, checkpoints, loop

checkpoints.Checkpoints.due = lambda self, unsaved, last=False: True
folder = Path({folder!r})
left = 0

def dying(function):
    def call(*args, **kwargs):
        global left
        left -= 1
        if left == 0:
            os._exit(9)
        return function(*args, **kwargs)
    return call

places = [(checkpoints, "save_file"), (Path, "write_text"), (Path, "rename"), (Path, "replace"), (Path, "mkdir"),
          (Path, "unlink"), (os, "fsync"), (atomic, "remove"), (torch.optim.AdamW, "step")]

def train(name, dies):
    global left
    model, step = test_loop.model_and_step()
    values = iter(())
    def evaluate():
        return abs(float(model[0].weight.detach().sum()))
    if dies:
        left = dies
        for owner, attribute in places:
            setattr(owner, attribute, dying(getattr(owner, attribute)))
    dev = loop.Dev(evaluate, every=2, first=True)
    curve = test_loop.train(folder / name, step, model, test_loop.Options(epochs=0.8), dev=dev)
    return repr([curve.state(), [p.tolist() for p in model.parameters()]])

def newest(name):
    # The step of the newest checkpoint whose best weights are there; 0 where there is none.
    states = [json.loads(path.read_text()) for path in (folder / name).glob("step-*/state.json")]
    return max([s["step"] for s in states if (folder / name / f"best-{{s['best_step']}}.safetensors").is_file()] + [0])

expected = train("whole", 0)
moment = reached = 0
while True:
    moment += 1
    child = os.fork()
    if child == 0:
        train(str(moment), moment)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 9), code
    if code == 0:
        break
    assert newest(str(moment)) >= reached, moment
    reached = newest(str(moment))
    assert train(str(moment), 0) == expected, moment
    assert train(str(moment), 0) == expected, moment
print(moment)
"""


def test_killed_at_any_moment_it_ends_the_same(tmp_path: Path) -> None:
    """A child is killed (no clean-up runs) before the n-th write, flush, rename, removal or update, for every n."""
    script = KILLED.format(paths=[str(ROOT), str(ROOT / "tests")], folder=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 60
