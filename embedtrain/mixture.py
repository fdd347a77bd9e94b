"""Merging at the end of training: which mixture of tuned and base weights is kept."""

from dataclasses import dataclass, field

from torch import Tensor

from embedtrain import console, merging
from embedtrain.dev import Measured
from embedtrain.encoder import Encoder
from embedtrain.errors import UsageError
from embedtrain.processes import Processes

AUTO = "auto"


@dataclass(frozen=True)
class Kept:
    """Which mixture is kept, in a sentence, and its dev value where it was measured."""

    why: str
    dev: float | None = None


@dataclass
class Merge:
    """What `--merge` asks for: nothing, a share of the tuned weights, or the share that is best on the dev split."""

    share: float | None = None
    choose: bool = False
    _base: dict[str, Tensor] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str, dev_split: str) -> "Merge":
        """Read `--merge`; UsageError for what is neither `auto` nor a share, and for `auto` without a dev split."""
        if not text:
            return cls()
        if text == AUTO:
            if not dev_split:
                raise UsageError("--merge auto picks by nDCG@10 on a dev split; name one with --dev-split")
            return cls(choose=True)
        try:
            share = float(text)
        except ValueError:
            share = -1.0
        if not 0 <= share <= 1:
            raise UsageError(f"--merge {text}: give auto, or the share of the tuned weights from 0 to 1")
        return cls(share=share)

    @property
    def evaluations(self) -> int:
        """Measurements that are made after training."""
        return len(merging.SHARES) if self.choose else 0

    def remember(self, encoder: Encoder) -> None:
        """Keep the weights training starts from."""
        if self.choose or self.share is not None:
            self._base = {name: value.detach().clone() for name, value in encoder.model.state_dict().items()}

    def apply(
        self,
        encoder: Encoder,
        dev: Measured | None,
        guard: Measured | None,
        progress: console.Progress,
        processes: Processes,
    ) -> Kept | None:
        """Give the model the mixture that is kept; None where none was asked for."""
        if not self._base:
            return None
        tuned = {name: value.detach().clone() for name, value in encoder.model.state_dict().items()}
        buffers = [name for name, _ in encoder.model.named_buffers()]

        def take(share: float) -> None:
            mixed = merging.interpolate(self._base, tuned, share, keep=buffers)
            encoder.model.load_state_dict(mixed)

        if self.share is not None:
            take(self.share)
            return Kept(f"{self.share:g} of the tuned weights, as --merge says")
        found: merging.Choice | None = None
        if processes.main and dev is not None:
            values, guarded = {}, {}
            for share in merging.SHARES:
                take(share)
                values[share] = dev(encoder, progress)
                if guard is not None:
                    guarded[share] = guard(encoder, progress)
            found = merging.choose(values, guarded if guard is not None else None)
        found = processes.same(found)
        assert found is not None
        take(found.share)
        return Kept(found.why, found.value)
