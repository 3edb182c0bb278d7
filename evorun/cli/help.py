"""`evorun --help`: usage, the config groups with their choices, and examples."""

import shutil
import textwrap

from evorun.cli.groups import LIKE, ROLES, choices
from evorun.cli.usage import USAGES

GROUPS = {
    "method": "the algorithm",
    "task": "the problems",
    "model": "generates the responses",
    "engine": "how it is served",
    **{
        group: about
        for role in ROLES
        for group, about in (
            (role, f"the method's {role} model; default: the policy, which is `model`"),
            (f"{role}_engine", f"how the {role} model is served; default: like the policy"),
        )
    },
    "gold": "grades where a task's grade is an opinion; no method can ask it; default: the policy",
    "tracker": "copies of the figures elsewhere, several as [NAME,NAME]; default: none",
    "student": "how the model is fine-tuned before the run; default: not at all",
    "teacher": "answers the questions that a student learns from",
    "teacher_engine": "how the teacher is served",
    "training": "how weights are trained, for a method or a student that trains",
    "budget": "limits on calls and tokens",
    "release": "authors' code, for settings that a method's paper leaves open",
    "experiment": "complete set-ups",
    "hydra/launcher": "where a sweep's jobs run",
}

_VERBS = "\n".join(f"       {usage.short:47} {usage.summary}" for usage in USAGES.values())

HEAD = f"""evorun: one runner for experiments that evolve what language models produce

usage: evorun [GROUP=CHOICE ...] [KEY=VALUE ...]       start a run
       evorun -m GROUP=CHOICE,CHOICE KEY=VALUE,VALUE   start a sweep: one run per combination
{_VERBS}

groups and their choices
"""

TAIL = """
common keys
  seed=0  task.draw_seed=0 (which problems)  budget.calls=N  budget.tokens=N
  task.data=FOLDER  task.source=sample  task.limit=N (problems)
  method.generations=N  hydra.run.dir=FOLDER  evorun.debug=true
  --cfg job prints the full composed configuration

examples
  evorun task.source=sample engine=simulated task.limit=30 method.generations=10
      a dry run: no weights, a simulated model, in a minute or two
  evorun method=duel_evolve task=mathbench task.data=FOLDER model=gemma3_4b engine=vllm
      the paper's MathBench run on a local GPU
  evorun -m seed=0,1,2 model=api model.id=NAME engine=server engine.base_urls=[URL] task.limit=20
      three seeds against an OpenAI-compatible server
  eval "$(evorun -sc install=bash)"
      completion of verbs, groups and keys, in this bash
"""


def print_help() -> None:
    """Print usage, the config groups with their choices, and examples."""
    lines = HEAD.splitlines()
    for group, about in GROUPS.items():
        offered = ", ".join(choices(group)) or "-"
        if group in LIKE:  # do not list all models again
            own = [name for name in choices(group) if name not in choices(LIKE[group])]
            offered = ", ".join([*own, f"any {LIKE[group]}"])
        lines.append(f"  {group:15} {offered}  ({about})")
    print("\n".join(map(_wrap, lines)) + "\n" + TAIL, end="")


def _wrap(line: str) -> str:
    """Return a line as lines that fit the terminal, none broken within a word."""
    width = shutil.get_terminal_size().columns
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    wrapped = textwrap.wrap(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(wrapped)
