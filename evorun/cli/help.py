"""`evorun --help`: usage, the config groups with their choices, and examples."""

from evorun.cli.compose import LIKE, ROLES, choices

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
    "student": "how the model is fine-tuned before the run; default: not at all",
    "teacher": "answers the questions that a student learns from",
    "teacher_engine": "how the teacher is served",
    "training": "how weights are trained, for a method or a student that trains",
    "budget": "limits on calls and tokens",
    "release": "authors' code, for settings that a method's paper leaves open",
    "experiment": "complete set-ups",
    "hydra/launcher": "where a sweep's jobs run",
}

HEAD = """evorun: one runner for experiments that evolve what language models produce

usage: evorun [GROUP=CHOICE ...] [KEY=VALUE ...]       start a run
       evorun -m GROUP=CHOICE,CHOICE KEY=VALUE,VALUE   start a sweep: one run per combination
       evorun resume RUN_DIR [KEY=VALUE ...]           continue a run that was stopped
       evorun report RUN_DIR... [--against=RUN_DIR]    print tables, write report.html, compare several runs
       evorun grade task=TASK responses=FILE.jsonl     grade given responses; needs no model
       evorun calibrate RUN_DIR [output=FILE.yaml]     fit a simulated model to a recorded run
       evorun traces RUN_DIR... kind=KIND output=FILE  write fine-tuning data from recorded runs
       evorun tournament RUN_DIR... judge=MODEL        rate runs by a judge's pairwise verdicts, or matches=FILE
       evorun rescore RUN_DIR                          score a run's responses by each of its rubrics
       evorun transplant RUN_DIR                       test a run's system prompts under its weights at several steps
       evorun delete-one RUN_DIR                       test a run's best system prompt without each of its principles
       evorun list [methods|tasks|models|engines]      list what is available, and which methods fit which tasks
       evorun doctor                                   check what this machine can run

groups and their choices
"""

TAIL = """
common keys
  seed=0  task.draw_seed=0 (which problems)  budget.calls=N  budget.tokens=N  hydra.run.dir=FOLDER  evorun.debug=true
  task.data=FOLDER  task.source=sample  task.limit=N (problems)  method.generations=N
  --cfg job prints the full composed configuration

examples
  evorun task.source=sample engine=simulated task.limit=30 method.generations=10
      a dry run: no weights, a simulated model, in seconds
  evorun method=duel_evolve task=mathbench task.data=FOLDER model=gemma3_4b engine=vllm
      the paper's MathBench run on a local GPU
  evorun -m seed=0,1,2 model=api model.id=NAME engine=server engine.base_urls=[URL] task.limit=20
      three seeds against an OpenAI-compatible server
"""


def print_help() -> None:
    """Print usage, the config groups with their choices, and three examples."""
    lines = []
    for group, about in GROUPS.items():
        offered = ", ".join(choices(group)) or "-"
        if group in LIKE:  # do not list all models again
            own = [name for name in choices(group) if name not in choices(LIKE[group])]
            offered = ", ".join([*own, f"any {LIKE[group]}"])
        lines.append(f"  {group:15} {offered}  ({about})")
    print(HEAD + "\n".join(lines) + "\n" + TAIL, end="")
