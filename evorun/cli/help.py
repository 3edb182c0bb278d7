"""`evorun --help`: what can be composed, with examples."""

from evorun.cli.compose import LIKE, ROLES, choices

GROUPS = {
    "method": "the algorithm",
    "task": "the problems",
    "model": "what generates",
    "engine": "how it is served",
    **{
        group: about
        for role in ROLES
        for group, about in (
            (role, f"the method's {role} model; default: the model itself"),
            (f"{role}_engine", "how that model is served; default: like the model"),
        )
    },
    "student": "how the model is fine-tuned before the run; default: it is not",
    "teacher": "what answers the questions that a student learns from",
    "teacher_engine": "how the teacher is served",
    "training": "how weights are trained, where a method or a student trains some",
    "budget": "limits of calls and tokens",
    "experiment": "whole set-ups",
    "hydra/launcher": "where a sweep's jobs run",
}

HEAD = """evorun: one runner for experiments that evolve what language models produce

usage: evorun [GROUP=CHOICE ...] [KEY=VALUE ...]       a run
       evorun -m GROUP=CHOICE,CHOICE KEY=VALUE,VALUE    a sweep: every combination
       evorun resume RUN_DIR [KEY=VALUE ...]            continue a run that was stopped
       evorun report RUN_DIR... [--against=RUN_DIR]      tables, report.html, and a comparison of several
       evorun grade task=TASK responses=FILE.jsonl      grade given responses, no model needed
       evorun traces RUN_DIR... kind=KIND output=FILE   fine-tuning data from recorded runs
       evorun list [methods|tasks|models|engines]       what there is, and what goes together
       evorun doctor                                    what this machine can run

groups and their choices
"""

TAIL = """
keys that every run has
  seed=0  task.draw_seed=0 (which problems)  budget.calls=N  budget.tokens=N  hydra.run.dir=FOLDER  evorun.debug=true
  task.data=FOLDER  task.source=sample  task.limit=N (problems)  method.generations=N
  --cfg job prints the whole composed configuration

examples
  evorun task.source=sample engine=simulated task.limit=12 method.generations=10
      a dry run: no weights, a simulated model, in seconds
  evorun method=duel_evolve task=mathbench task.data=FOLDER model=gemma3_4b engine=vllm
      the paper's MathBench run on a local GPU
  evorun -m seed=0,1,2 model=api model.id=NAME engine=server engine.base_urls=[URL] task.limit=20
      three seeds against an OpenAI-compatible server
"""


def print_help() -> None:
    """Print usage, the config groups with their choices, and three examples."""
    print(HEAD + "\n".join(_group_line(group, about) for group, about in GROUPS.items()) + "\n" + TAIL, end="")


def _group_line(group: str, about: str) -> str:
    if group in LIKE:
        policy = "policy or " if group.removesuffix("_engine") in ROLES else ""
        return f"  {group:15} {policy}any {LIKE[group]}  ({about})"
    return f"  {group:15} {', '.join(choices(group)) or '-'}  ({about})"
