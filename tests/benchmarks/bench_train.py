"""Training MiniLM on MedQuAD: `finetune` and SentenceTransformerTrainer, plain and with gradient caching; memory, padding.

    python tests/benchmarks/bench_train.py [--rounds 3] [--steps 2] [--only small] [--json]

Within 25 minutes on 2 cores at some 1,500 tokens a second. `small`: batches of 32 with 4 negatives and 256 tokens, against
the trainer's defaults and its best settings. `large`: one batch of 1,024 pairs, shorter texts, gradient caching on both
sides, dropout 0 on both, where the losses of the untrained model must agree to 1e-3. `memory`: what the large batch needs
over the small one. Needs the package `datasets`, which the trainer takes; `--alone` runs ours only.
"""

import argparse
import sys
from pathlib import Path

from figures import finish
from training import PACKAGES, PARTS, Plan, measure, source


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="rounds [default: 3]")
    parser.add_argument("--steps", type=int, default=2, help="timed steps a round of the small batch [default: 2]")
    parser.add_argument("--batch", type=int, default=32, help="the small batch [default: 32]")
    parser.add_argument("--length", type=int, default=256, help="tokens of a text there [default: 256]")
    parser.add_argument("--large", type=int, default=1_024, help="the large batch [default: 1024]")
    parser.add_argument("--large-length", type=int, default=48, help="tokens of a text there [default: 48]")
    parser.add_argument("--large-negatives", type=int, default=0, help="negatives of a row there [default: 0]")
    parser.add_argument("--collection", type=Path, help="a collection in place of MedQuAD")
    parser.add_argument("--only", choices=PARTS, action="append", help="this part; may be given again")
    parser.add_argument("--alone", action="store_true", help="run ours only")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    arguments = parser.parse_args()
    plan = Plan(
        collection=source(arguments.collection),
        rounds=arguments.rounds,
        batch=arguments.batch,
        steps=arguments.steps,
        length=arguments.length,
        negatives=4,
        large=((arguments.large, arguments.rounds),),
        large_length=arguments.large_length,
        large_negatives=arguments.large_negatives,
        search=(8, 32, 64),
        search_rows=min(128, arguments.large),
        agree_rows=min(256, arguments.large),
        warm=min(8, arguments.batch),
        parts=tuple(arguments.only or PARTS),
        alone=arguments.alone,
    )
    return finish(measure(plan), arguments.json, *PACKAGES)


if __name__ == "__main__":
    sys.exit(main())
