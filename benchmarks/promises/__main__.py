"""Measure every promise of docs/statistics, and write the page about it.

    export PYTHONPATH=src:benchmarks
    python -m promises                      # what is missing, over all cores; then the page
    python -m promises --only release-gate  # those whose name begins so; then their rows
    python -m promises --page               # the page from the counts that exist

Counts are kept in build/promises, a file per simulation: an interrupted run resumes where it stopped. A file has the
fingerprint of settings and code; where either changed, the counts are drawn again. The exit status is 1 if a rate
lies outside its promise, 3 where counts are still missing.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from promises.page import read, rows, write
from promises.register import PROMISES
from promises.runner import cost, measured, run

ROOT = Path(__file__).parents[2]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", type=Path, default=ROOT / "build" / "promises", help="folder of the counts")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no new block after so long")
    parser.add_argument("--only", default="", help="promises whose name begins so")
    parser.add_argument("--page", action="store_true", help="draw nothing, write the page from the counts there are")
    options = parser.parse_args()
    chosen = [promise for promise in PROMISES if promise.name.startswith(options.only)]
    if not options.page:
        run(options.counts, chosen, jobs=options.jobs, seconds=options.seconds)
    rates = measured(options.counts, chosen)
    missing = [promise.name for promise in chosen if promise.name not in rates]
    outside = [promise for promise in chosen if promise.name in rates and not rates[promise.name].keeps(promise)]
    for promise in outside:
        rate = rates[promise.name]
        print(
            f"outside: {promise.name} ({promise.setting}): {100 * rate.rate:.2f} ± {100 * rate.error:.2f} %, "
            f"promised {100 * promise.low:g} to {100 * promise.high:g} %"
        )
    print(f"{len(rates)} of {len(chosen)} promises measured, {len(outside)} outside")
    print(f"{cost(options.counts, chosen):.0f} core-minutes")
    if missing:
        print(f"still missing: {', '.join(missing[:5])}{' …' if len(missing) > 5 else ''}")
    folder = ROOT / "docs" / "statistics"
    write(folder, rows(PROMISES, rates, read(folder / "promises.csv")))
    return 3 if missing else int(bool(outside))


if __name__ == "__main__":
    sys.exit(main())
