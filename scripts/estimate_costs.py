"""Estimate what an experiment costs: runs, model calls, completion tokens and GPU hours.

    python scripts/estimate_costs.py lyria/table1 model=qwen2_5_7b

Nothing runs: `evorun.runner.estimates` counts on the composed configuration of each run; runs of the random model are
left out. scripts/write_paper_tables.py writes the estimates into docs/papers/. `evorun plan` says more of any command.
"""

import argparse
import sys
from collections.abc import Sequence

from evorun.cli.composed_jobs import compose_experiment
from evorun.cli.job_command import CONFIG_DIR
from evorun.cli.output import print_error
from evorun.errors import EvorunError
from evorun.runner.estimates import estimate


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the estimate that the arguments ask for; exit with 1 and one line on an error."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(CONFIG_DIR, metavar="FOLDER", help="folder of configurations of your own")
    parser.add_argument("experiment", help="of conf/experiment/ or FOLDER/experiment/, such as lyria/table1")
    parser.add_argument("overrides", nargs="*", help="as on the command line: model=NAME, task.limit=N, ...")
    asked = parser.parse_args(arguments)
    try:
        folder = [] if asked.config_dir is None else [f"{CONFIG_DIR}={asked.config_dir}"]
        cost = estimate(compose_experiment(asked.experiment, [*folder, *asked.overrides]))
    except EvorunError as error:
        print_error(str(error))
        sys.exit(1)
    print(f"{cost.runs} runs, {cost.calls:,.0f} calls, {cost.tokens:,.0f} tokens, {cost.describe_hours()}")


if __name__ == "__main__":
    main()
