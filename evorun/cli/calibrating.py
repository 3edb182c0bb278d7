"""`evorun calibrate`: fit a simulated model to a recorded run, without calling any model."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from evorun.cli.options import add_option, take_flag
from evorun.cli.usage import USAGES
from evorun.errors import ConfigError
from evorun.reports.tables import Table, figure_columns, word_columns
from evorun.runs.calibration import Calibration, Estimate, calibrate
from evorun.runs.directory import load_manifest
from evorun.runs.manifest import Manifest
from evorun.runs.outputs import refuse_folder_of_records, refuse_replacing
from evorun.runs.paths import display
from evorun.runs.printable import printable
from evorun.runs.records import write_atomically
from evorun.runs.studies import REJUDGED, load_rejudge
from evorun.runs.terminal import Terminal
from evorun.tasks.puzzles.puzzle import PENALISED_SCORE

_OF_ANSWERS = ("skill", "spread", "typical_mistake", "improvement", "misleading")


def calibrate_run(arguments: Sequence[str], console: Terminal) -> int:
    """Print the settings estimated from a run, write them as an engine if asked to, and return the exit code.

    Raises ConfigError for a wrong command line, and the errors of `calibrate`.
    """
    given, output = _request(arguments)
    run, judged = (given.resolve().parents[1], given) if (given / REJUDGED).is_file() else (given, None)
    if judged is not None and (kind := load_rejudge(judged).kind) != "duels":
        raise ConfigError(
            f"{display(judged)}: expected a rejudging of duels, got one of {kind}; give one with judge=..."
        )
    manifest = load_manifest(run)
    found = calibrate(run, judged)
    if any(score.name == PENALISED_SCORE for score in manifest.scores):
        found = _without_answers(found)
    about = f"{_model(manifest)}, by {manifest.method} on {manifest.task}"
    if judged is not None:
        about += f", judged again by {', '.join(load_rejudge(judged).changes)}"
    console.print(f"{about}, as a simulated model:", soft_wrap=True)
    console.print_table(_make_table(found.estimates).to_rich())
    for key, reason in found.unknown.items():
        console.print(f"{key}: unknown from this run, {reason}", soft_wrap=True)
    judge, policy = (manifest.models.get(role) for role in ("judge", "policy"))
    if judged is None and judge is not None and policy is not None and judge.label != policy.label:
        console.print(
            f"the verdicts are those of {judge.label}: set the judge's values on judge_engine",
            soft_wrap=True,
        )
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(output, _engine(found, about).encode())
        use = f"evorun --config-dir {display(output.parent.parent)} engine={output.stem} ..."
        written = f"written: {display(output)}; to use it: {use}"
        console.print(written, soft_wrap=True)
    return 0


def _request(arguments: Sequence[str]) -> tuple[Path, Path | None]:
    """Return the run and the file to write."""
    options: dict[str, str] = {}
    runs: list[Path] = []
    for argument in arguments:
        if argument.partition("=")[0] in ("output", "overwrite") and "=" in argument:
            add_option(options, argument)
        else:
            runs.append(Path(argument))
    if len(runs) > 1:
        raise ConfigError(
            f"expected one run to calibrate from, got {len(runs)}; give one, or calibrate from each in turn"
        )
    if not runs:
        raise ConfigError(f"expected: {USAGES['calibrate'].synopsis}; got: {' '.join(arguments) or 'nothing'}")
    overwrite = take_flag(options, "overwrite")
    if "output" not in options:
        return runs[0], None
    output = Path(options["output"])
    if output.suffix != ".yaml" or output.absolute().parent.name != "engine":
        raise ConfigError(f"output: expected a file NAME.yaml in a folder named engine, got {output}")
    refuse_folder_of_records("output", output.parent)
    refuse_replacing("output", output, overwrite=overwrite)
    return runs[0], output


def _without_answers(found: Calibration) -> Calibration:
    """Drop the estimates from right answers: a simulated model of a puzzle has a skill per decision."""
    reason = "a simulated model of a puzzle applies it per decision, not per answer"
    kept = [estimate for estimate in found.estimates if estimate.key not in _OF_ANSWERS]
    return Calibration(kept, {}, {**dict.fromkeys(_OF_ANSWERS, reason), **found.unknown})


def _make_table(estimates: Sequence[Estimate]) -> Table:
    return Table(
        [*word_columns("engine."), *figure_columns("value", "95 % interval"), *word_columns("from")],
        [(estimate.key, f"{estimate.value:.3f}", _interval(estimate), _source(estimate)) for estimate in estimates],
    )


def _interval(estimate: Estimate) -> str:
    return "-" if estimate.ci95 is None else "{:.3f} to {:.3f}".format(*estimate.ci95)


def _source(estimate: Estimate) -> str:
    return f"{estimate.n:,} {estimate.unit}, {estimate.problems:,} problem{'s' * (estimate.problems != 1)}"


def _model(manifest: Manifest) -> str:
    policy = manifest.models.get("policy")
    return "the model" if policy is None else policy.label


def _engine(found: Calibration, about: str) -> str:
    """Return the text of an engine's YAML: `engine=simulated` with the estimates."""
    lines = [
        f"# A simulated model like {' '.join(printable(about).split())},",
        "# as `evorun calibrate` estimated it from that run.",
        "# Everything else is as in engine=simulated.",
        f"# Unknown from the run: {', '.join(found.unknown) or 'nothing'}.",
        "defaults:",
        "  - simulated",
        "  - _self_",
        *(
            f"{estimate.key}: {estimate.value:.4f} # {_interval(estimate)}; {_source(estimate)}"
            for estimate in found.estimates
        ),
        *_skills(found.skills),
    ]
    return "\n".join(lines) + "\n"


def _skills(skills: Mapping[str, float]) -> list[str]:
    """Return the lines of the skills by problem, without ids that OmegaConf would take for references."""
    plain = {problem: chance for problem, chance in skills.items() if "${" not in problem}
    named = [f"  {json.dumps(problem)}: {chance:.4f}" for problem, chance in plain.items()]
    return ["skills: # the posterior mean of each problem's own", *named] if named else []
