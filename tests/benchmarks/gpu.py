"""The speed table of training on one GPU, in some 8 minutes: as bench_train.py, longer, with batches of 16,384 too.

    python tests/benchmarks/gpu.py [--out results.json] [--collection FOLDER]

bfloat16 where the GPU has it; batches of 1,024 and 16,384 have 4 negatives and 256 tokens too. Where there is no GPU the
exit code is 2. Needs the package `datasets`.
"""

import argparse
import sys
from pathlib import Path

from figures import finish
from training import PACKAGES, PARTS, Plan, measure, source


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the result as JSON to this file too")
    parser.add_argument("--rounds", type=int, default=3, help="rounds; 16,384 has one [default: 3]")
    parser.add_argument("--steps", type=int, default=20, help="timed steps a round of batch 32 [default: 20]")
    parser.add_argument("--collection", type=Path, help="a collection in place of MedQuAD")
    parser.add_argument("--only", choices=PARTS, action="append", help="this part; may be given again")
    arguments = parser.parse_args()
    import torch

    if not torch.cuda.is_available():
        print(
            "this machine has no GPU that torch can use; the same table on a CPU: tests/benchmarks/bench_train.py",
            file=sys.stderr,
        )
        return 2
    plan = Plan(
        collection=source(arguments.collection),
        rounds=arguments.rounds,
        batch=32,
        steps=arguments.steps,
        length=256,
        negatives=4,
        large=((1_024, arguments.rounds), (16_384, 1)),
        large_length=256,
        large_negatives=4,
        search=(64, 256, 1_024),
        search_rows=1_024,
        agree_rows=1_024,
        warm=None,
        parts=tuple(arguments.only or PARTS),
    )
    return finish(measure(plan), False, *PACKAGES, out=arguments.out)


if __name__ == "__main__":
    sys.exit(main())
