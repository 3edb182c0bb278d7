"""Write the tables of docs/papers/ that are computed: what each figure costs, and what was measured beside the paper's.

    python scripts/write_paper_tables.py                                # all tables of each page
    python scripts/write_paper_tables.py --random outputs/sweeps/TIME   # of experiment=lyria/table1 model=random, first

Costs are estimates (evorun/runner/estimates.py). The paper's figures are those under `reported` in conf/experiment/.
What evorun measured is read from the tables of its studies, and that of the random model from
docs/papers/random_baseline.json.
"""

import argparse
import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evorun.cli.compose import yaml_values
from evorun.cli.composed_jobs import compose_experiment, count_random_jobs
from evorun.runner.estimates import Cost, estimate

DOCS = Path(__file__).parents[1] / "docs"
RANDOM_BASELINE = DOCS / "papers" / "random_baseline.json"

ROWS: dict[str, list[tuple[str, str]]] = {
    "duel_evolve": [
        ("Figure 2, MathBench", "duel_evolve/figure2 task.data=FOLDER"),
        ("Figure 3, LiveCodeBench", "duel_evolve/figure3 task.data=FOLDER"),
    ],
    "espl": [
        ("Figure 11, three pairs of contests", "espl/figure11 task.source=hub"),
        ("Figure 12, learning curves", "espl/figure12 task.source=hub"),
        ("Figure 13, agentic search", "espl/figure13 model.id=FOLDER task.source=hub task.corpus=FILE"),
        ("Figure 14, crossover", "espl/figure14 task.source=hub"),
        ("Figure 15, who reflects", "espl/figure15 task.source=hub"),
    ],
    "lyria": [
        ("Tables 1 and 5 to 7, Qwen2.5 7B", "lyria/table1 model=qwen2_5_7b"),
        ("Tables 1 and 5 to 7, Mistral 7B", "lyria/table1 model=mistral_7b"),
        ("Tables 1 and 5 to 7, Qwen2.5 32B", "lyria/table1 model=qwen2_5_32b"),
        ("Tables 1 and 5 to 7, GPT-4o mini", "lyria/table1 model=gpt_4o_mini engine=openai"),
        ("Figure 2, section 4.3.1", "lyria/scaling"),
        ("section 4.3.1, population alone", "lyria/population"),
        ("section 4.3.1, generations alone", "lyria/generations"),
        ("section 4.3.2, who evaluates", "lyria/fitness"),
        ("section 4.3.3, errors", "lyria/errors"),
        ("section 4.3.3, experience pool", "lyria/replay"),
        ("section 4.3.3, repeats", "lyria/dedup"),
        ("section 4.3.4, symbolic operators", "lyria/external"),
        ("Table 2, LAFT on Sudoku", "laft/sudoku engine=vllm"),
        ("Table 3, LAFT on graph colouring", "laft/graph_coloring engine=vllm"),
        ("Table 4, LAFT on travelling salesman", "laft/tsp engine=vllm"),
    ],
    "mpo": [
        ("Table 1 (right), Figure 4", "mpo/essay task.source=hub"),
        ("Table 1 (left), Figures 4, 5 and 8", "mpo/reward_models task.source=hub"),
        ("Table 2, bills", "mpo/billsum task.source=hub"),
        ("Table 3 (left), moral judgement", "mpo/ethics task.data=FOLDER"),
        ("Table 3 (right), mathematics", "mpo/math task.source=hub"),
        ("Table 4, the oracle rubric", "mpo/oracle task.source=hub"),
        ("Table 5, reward hacking", "mpo/reward_hacking task.source=hub"),
        ("Table 6, other policies", "mpo/policy_scaling task.source=hub"),
        ("Table 7, without meta-analysis", "mpo/ablation_meta_analysis task.source=hub"),
        ("Table 8, time", "mpo/overhead task.source=hub"),
    ],
}
"""The tables and figures of each page, with the experiment and further overrides of its command."""


def shorten(number: float) -> str:
    """Return a number with two or three digits, and a unit of thousands, millions or billions."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.{0 if number >= 100 * size else 1}f}\N{NO-BREAK SPACE}{unit}"
    return f"{number:.{1 if 0 < number < 10 and number % 1 else 0}f}"


def describe_runs(experiment: str, runs: int) -> str:
    """Return the number of runs, and that of the random baselines that the experiment's sweep adds to them."""
    return describe_counts(runs, count_random_jobs(experiment))


def describe_counts(runs: int, baselines: int) -> str:
    """Return numbers of runs and of random baselines."""
    return f"{runs} + {baselines} random" if baselines else str(runs)


def estimate_command(command: str) -> Cost:
    """Return the cost of a page's command."""
    experiment, *given = command.split()
    return estimate(
        compose_experiment(
            experiment, [override for override in given if override.split("=")[0] in ("model", "engine")]
        )
    )


def describe_cost(runs: str, cost: Cost) -> str:
    """Return the last four cells of a line of costs."""
    # those of a model behind an API, or of any other without an entry, are unknown
    hours = f"{'at least ' if cost.unsized else ''}{shorten(cost.hours)}" if cost.hours else "unknown"
    return " | ".join((runs, shorten(cost.calls), shorten(cost.tokens), hours))


def make_cost_row(title: str, command: str, cost: Cost | None = None) -> str:
    """Return the line of a table or figure; cost: None where it is still to be estimated."""
    cost = cost or estimate_command(command)
    runs = describe_runs(command.split()[0], cost.runs)
    return f"| {title} | `evorun experiment={command}` | {describe_cost(runs, cost)} |"


def make_total_row(costs: Sequence[Cost], baselines: int) -> str:
    """Return the line of all tables and figures of a page; baselines: their runs of the random model."""
    total = Cost()
    for cost in costs:
        total.runs += cost.runs
        total.calls += cost.calls
        total.tokens += cost.tokens
        total.hours += cost.hours
        total.unsized |= cost.unsized
    return f"| **all of them** | | {describe_cost(describe_counts(total.runs, baselines), total)} |"


def make_costs(page: str) -> str:
    """Return the table of what a paper's tables and figures cost, in Markdown."""
    head = "| of the paper | command | runs | calls | tokens | H100 hours |\n| --- | --- | --: | --: | --: | --: |\n"
    costs = [estimate_command(command) for _, command in ROWS[page]]
    lines = [make_cost_row(*row, cost) for row, cost in zip(ROWS[page], costs, strict=True)]
    baselines = sum(count_random_jobs(command.split()[0]) for _, command in ROWS[page])
    return head + "\n".join((*lines, make_total_row(costs, baselines))) + "\n"


def find_reported(experiment: str, metric: str, keys: Mapping[str, str | None]) -> float:
    """Return a figure that the paper reports, by the keys of its row."""
    reported: Any = yaml_values("experiment", experiment)["reported"]
    found = [
        row
        for row in reported["rows"]
        if all(row.get(key, row.get("overrides", {}).get(key)) == keys[key] for key in keys)
    ]
    (value,) = {row.get(metric, row.get("metrics", {}).get(metric)) for row in found}
    return float(value)


def find_measured(page: str, arm: str, column: str) -> str:
    """Return what a study's table has of an arm."""
    columns: list[str] = []
    for line in (DOCS / page).read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if cells[0] == "arm":
            columns = cells
        elif cells[0] == f"`{arm}`" and columns:
            return cells[columns.index(column)]
    raise ValueError(f"{page}: expected a row {arm}")


def negate(measured: str) -> str:
    """Return a difference seen from the other side: "-0.08 ± 0.07" becomes "+0.08 ± 0.07"."""
    return measured[1:].join(("+", "")) if measured.startswith("-") else f"-{measured}"


def compare_duel_evolve() -> list[tuple[str, ...]]:
    """Return differences in accuracy: those of Figure 2's text beside the study's at 600 calls."""
    figure2 = {
        name: find_reported("duel_evolve/figure2", "accuracy", {"method": name})
        for name in ("duel_evolve", "feedback_descent")
    }
    other = " engine.skill=0.35 engine.spread=0.1 engine.typical_mistake=0.7"
    rows: list[tuple[str, ...]] = [
        ("accuracy of Duel-Evolve less that of", "paper, Figure 2", "here, like a language model", "here, other model")
    ]
    for name, title in (
        ("feedback_descent", "Feedback Descent"),
        ("best_of_n", "best-of-N"),
        ("self_consistency", "self-consistency"),
    ):
        reported = f"{figure2['duel_evolve'] - figure2[name]:+.2f}" if name in figure2 else "in a picture"
        arms = (f"method={name} budget=calls_600", f"method={name} budget=calls_600{other}")
        rows.append(
            (title, reported, *(negate(find_measured("duel_evolve_study.md", arm, "difference")) for arm in arms))
        )
    return rows


def compare_espl() -> list[tuple[str, ...]]:
    """Return differences in pass rate from RL alone: those of Figures 11 and 13 beside the study's."""

    def gain(method: str, experiment: str, title: str, **keys: str) -> str:
        ours, theirs = (find_reported(experiment, "pass_rate", {"method": name, **keys}) for name in (method, "grpo"))
        return f"{ours - theirs:+.3f} {title}"

    contests = {"dapo_aime25": "AIME 2025", "hmmt": "HMMT", "beyond_aime": "BeyondAIME"}
    gains = [gain("espl", "espl/figure12", title, task=task) for task, title in contests.items()]
    evolution = gain("espl_evolution", "espl/figure12", "BeyondAIME", task="beyond_aime")
    search = [gain(method, "espl/figure13", "search") for method in ("espl", "espl_evolution")]

    def over_rl(arm: str) -> str:
        return find_measured("espl_study.md", arm, "over RL")

    return [
        ("pass rate less that of RL alone", "paper", "here, principles help", "here, principles do nothing"),
        (
            "E-SPL",
            ", ".join([*gains, search[0]]),
            over_rl("method=espl"),
            over_rl("method=espl engine.principle_gain=0"),
        ),
        ("evolution alone", f"{evolution}, {search[1]}", over_rl("method=espl_evolution"), "-"),
    ]


def compare_lyria() -> list[tuple[str, ...]]:
    """Return penalised scores of Tables 5 to 7 under Lyria, beside those of a model that answers at random."""
    models = {
        "gpt_4o_mini": "GPT-4o mini",
        "qwen2_5_32b": "Qwen2.5 32B",
        "qwen2_5_7b": "Qwen2.5 7B",
        "mistral_7b": "Mistral 7B",
    }
    scores = json.loads(RANDOM_BASELINE.read_text())
    rows: list[tuple[str, ...]] = [
        ("penalised score under Lyria", *(f"paper, {title}" for title in models.values()), "here, random model")
    ]
    for task, title in (("sudoku", "Sudoku"), ("graph_coloring", "graph colouring"), ("tsp", "travelling salesman")):
        reported = (
            find_reported("lyria/table1", "penalised_score_paper", {"method": "lyria", "task": task, "model": model})
            for model in models
        )
        rows.append((title, *(f"{value:.0f}" for value in reported), f"{scores['lyria'][task]:.1f}"))
    return rows


MPO_ARMS = {
    "base": "untrained",
    "initial": "PPO, initial rubric",
    "expert": "PPO, the expert's rubric",
    "oracle.md": "PPO, the oracle rubric",
    "before": "PPO, AutoPrompt's rubric",
    "no analysis": "MPO without analysis",
    "mpo": "MPO",
}
"""The arms of MPO's tables: what each learns from."""
MPO_TABLES: tuple[tuple[str, str, str, str], ...] = (
    # table, experiment, metric, its name
    ("Table 1 (left)", "reward_models", "elo", "Elo"),
    ("Table 1 (right)", "essay", "elo", "Elo"),
    ("Table 2, bills", "billsum", "elo", "Elo"),
    ("Table 2, bills", "billsum", "rouge1", "ROUGE-1"),
    ("Table 2, bills", "billsum", "rouge2", "ROUGE-2"),
    ("Table 2, bills", "billsum", "rougeL", "ROUGE-L"),
    ("Table 2, bills", "billsum", "rougeLsum", "ROUGE-Lsum"),
    ("Table 3 (left), moral judgement", "ethics", "accuracy", "accuracy"),
    ("Table 3 (right), mathematics", "math", "accuracy", "accuracy"),
    ("Table 4", "oracle", "elo", "Elo"),
    ("Table 5, foreign letters", "reward_hacking", "monitor_foreign_script", "share"),
    ("Table 6", "policy_scaling", "elo", "Elo"),
    ("Table 7", "ablation_meta_analysis", "elo", "Elo"),
    ("Table 8", "overhead", "relative_run_time", "time beside PPO's"),
)
"""The figures of MPO's tables, each as the experiment under whose `reported` it stands."""
SIZES = {"qwen2_5_32b_awq": "32B", "qwen2_5_72b_awq": "72B", "llama3_1_8b": "8B"}


def find_mpo_arm(row: Mapping[str, Any], rubric: str) -> str:
    """Return the column of a reported row; rubric: that of the experiment's PPO where the row names none."""
    settings = row.get("overrides", {})
    if row["method"] == "zero_shot":
        return "base"
    if row["method"] == "ppo":
        return str(settings.get("method.rubric", rubric))
    if settings.get("method.meta_analysis") is False:
        return "no analysis"
    return "before" if settings.get("method.refine_schedule") == "before" else "mpo"


def find_ppo_rubric(reported: Mapping[str, Any]) -> str:
    """Return the rubric of an experiment's PPO, by the settings beside its name in the paper."""
    rubrics = {arm["overrides"]["method.rubric"] for arm in reported.get("names", ()) if arm["method"] == "ppo"}
    return rubrics.pop() if len(rubrics) == 1 else "initial"


def tabulate_mpo() -> list[tuple[str, ...]]:
    """Return the figures of MPO's tables, a line for each metric and pair of models, a column for each arm."""
    lines: dict[tuple[str, ...], dict[str, str]] = defaultdict(dict)
    for title, experiment, metric, name in MPO_TABLES:
        reported: Any = yaml_values("experiment", f"mpo/{experiment}")["reported"]
        for row in reported["rows"]:
            settings = row.get("overrides", {}) | row.get("among", {})
            sizes = [
                f"{SIZES[settings[role]]} {word}"
                for role, word in (("reward", "reward model"), ("meta", "meta reward model"))
                if role in settings
            ]
            values: Any = {**row.get("metrics", {}), "accuracy": row.get("accuracy")}
            for step, value in row.get("steps", {}).get(metric) or [(None, values[metric])]:
                step_name = () if step is None else (f"step {step}",)
                of_line = (title, ", ".join(filter(None, (name, *step_name, *sizes))))
                lines[of_line][find_mpo_arm(row, find_ppo_rubric(reported))] = format_reported(metric, value)
    head = ("of the paper", "figure", *MPO_ARMS.values())
    return [head, *((*line, *(values.get(arm, "") for arm in MPO_ARMS)) for line, values in lines.items())]


def format_reported(metric: str, value: float) -> str:
    """Return a reported figure with as many digits as tell two apart."""
    if metric == "elo":
        return f"{value:,.0f}"
    if metric == "accuracy":
        return f"{value:.1%}".replace("%", " %")
    return f"{value:.2f}" if metric == "relative_run_time" else f"{value:.4f}".removeprefix("0")


def compare_mpo() -> list[tuple[str, ...]]:
    """Return Elo ratings of Table 1 (32B) beside the gold judge's scores of the simulated study."""
    rated = {"reward": "qwen2_5_32b_awq"}
    arms: dict[str, dict[str, str | None]] = {
        "initial": {"method": "ppo", "method.rubric": "initial", **rated},
        "expert": {"method": "ppo", "method.rubric": "expert", **rated},
        "before": {"method": "mpo", "method.refine_schedule": "before", **rated},
        "mpo": {"method": "mpo", "method.refine_schedule": None, **rated},
    }
    measured = {"initial": "method=ppo", "mpo": "method=mpo"}
    rows: list[tuple[str, ...]] = [
        ("essays", "paper, Elo of Table 1 (32B reward model)", "here, gold score, a loophole", "here, no loophole")
    ]
    for arm, keys in arms.items():
        if arm in measured:
            scores = [
                find_measured("mpo_study.md", f"{measured[arm]}{rest}", "after") for rest in ("", " engine.loophole=0")
            ]
        else:
            scores = ["not in the study"] * 2
        rows.append((MPO_ARMS[arm], format_reported("elo", find_reported("mpo/essay", "elo", keys)), *scores))
    return rows


COMPARISONS = {"duel_evolve": compare_duel_evolve, "espl": compare_espl, "lyria": compare_lyria, "mpo": compare_mpo}


TABLES = {"mpo": tabulate_mpo}
"""The papers' figures on pages that have them all in one table."""


def make_comparison(page: str) -> str:
    """Return the table of reported and measured figures of a page, in Markdown."""
    return write_rows(COMPARISONS[page]())


def write_rows(rows: Sequence[tuple[str, ...]]) -> str:
    """Return a table in Markdown; the first row has the names of its columns."""
    head, *others = rows
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ("---",) * len(head), *others)) + "\n"


def put_between_marks(text: str, what: str, table: str) -> str:
    """Return a page with a table in the place of what stands between its marks."""
    begin, end = f"<!-- {what}: scripts/write_paper_tables.py -->", "<!-- end -->"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if len(pattern.findall(text)) != 1:
        raise ValueError(f"expected {begin} and {end} once")
    return pattern.sub(lambda _: f"{begin}\n\n{table}\n{end}", text)


def read_random_baseline(sweep: Path) -> dict[str, dict[str, float]]:
    """Return the mean penalised scores of the runs of a sweep, by method and task."""
    scores: dict[str, dict[str, float]] = {}
    for file in sorted(sweep.glob("*/results.json")):
        manifest = json.loads((file.parent / "manifest.json").read_text())
        value = json.loads(file.read_text())["metrics"]["penalised_score_paper"]["value"]
        scores.setdefault(manifest["method"], {})[manifest["task"]] = round(value, 2)
    return scores


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--random", type=Path, help="folder of the sweep of the random model")
    sweep = parser.parse_args().random
    if sweep is not None:
        RANDOM_BASELINE.write_text(json.dumps(read_random_baseline(sweep), indent=2) + "\n")
    for name in ROWS:
        page = DOCS / "papers" / f"{name}.md"
        written = put_between_marks(page.read_text(), "costs", make_costs(name))
        written = put_between_marks(written, "compared", make_comparison(name))
        if name in TABLES:
            written = put_between_marks(written, "reported", write_rows(TABLES[name]()))
        page.write_text(written)
