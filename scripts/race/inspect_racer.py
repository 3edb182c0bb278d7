"""inspect_ai in the race: PROBLEMS samples of SAMPLES epochs each, scored by a match, with its log.

python inspect_racer.py URL|mockllm PROBLEMS SAMPLES FOLDER [--again]
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from inspect_ai import Task, eval, eval_retry, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.log import read_eval_log, recover_eval_log
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import includes
from inspect_ai.solver import generate

AT_ONCE = 64


@task
def sums(problems: int = 50, samples: int = 40) -> Task:
    """Return additions, each to be answered `samples` times."""
    dataset = MemoryDataset(
        [Sample(f"What is {number} + {number}?", target=f"{2 * number}") for number in range(problems)]
    )
    return Task(dataset=dataset, solver=generate(), scorer=includes(), epochs=samples)


def mocked() -> Iterator[ModelOutput]:
    """Yield answers with a usage: without one, inspect_ai downloads a tokeniser to count tokens."""
    while True:
        output = ModelOutput.from_content("mockllm/model", "The answer is \\boxed{4}.")
        output.usage = ModelUsage(input_tokens=100, output_tokens=40, total_tokens=140)
        yield output


def main() -> None:
    """Run the evaluation, or continue what a killed one left: recover its log, then retry what is missing."""
    url, problems, samples, folder = sys.argv[1:5]
    os.environ.update(RACE_BASE_URL=f"{url}/v1", RACE_API_KEY="none")
    settings = {"log_dir": folder, "display": "none", "max_connections": AT_ONCE, "max_samples": AT_ONCE}
    if "--again" not in sys.argv:
        model = (
            get_model("mockllm/model", custom_outputs=mocked())
            if url == "mockllm"
            else get_model("openai-api/race/race")
        )
        logs = eval(sums(int(problems), int(samples)), model=model, **settings)
    else:
        left = max(Path(folder).glob("*.eval"), key=lambda path: path.stat().st_mtime)
        log = read_eval_log(str(left))
        logs = [log]
        if log.status == "started":
            recovered = recover_eval_log(str(left), cleanup=False, overwrite=True)
            logs = eval_retry(recovered if recovered is not None else log, **settings)
    if logs[0].status != "success":
        sys.exit(f"inspect_ai ended as {logs[0].status}: {logs[0].error}")


if __name__ == "__main__":
    main()
