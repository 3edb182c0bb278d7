"""Time of E-SPL's own work on system prompts: every training step pays it beside the models' time."""

from typing import Any

import msgspec
import numpy as np
import trueskill as package

from evorun.cli.compose import default_config
from evorun.methods.espl.operators import OperatorPrompts, find_contrasts, problem_text, read_summary
from evorun.methods.espl.population import Member, Population
from evorun.methods.espl.system_prompts import Limits, SystemPrompt
from evorun.models.base import Completion, Reply
from evorun.ratings import trueskill
from evorun.rollouts.episodes import Asked, Episode
from evorun.rollouts.rewards import Reward
from evorun.runs.candidates import Response
from evorun.tasks.base import Problem, Prompt
from evorun_bench import Row, best_ms

TINY = {"repeats": 1, "problems": 2, "principles": 3}
EDITS = [{"op": "add", "text": "Check it. " * 10}, {"op": "modify", "id": "G1", "text": "Count twice. " * 10}]


def measure(repeats: int = 200, problems: int = 10, principles: int = 30) -> list[Row]:
    """Measure so many times: ratings of three system prompts, and all that a step does with so many problems."""
    mean, sd, parameters = [25.0, 27.0, 24.0], [8.0, 4.0, 6.0], {"beta": 25 / 6, "tau": 25 / 300}
    environment = package.TrueSkill(draw_probability=0.1, **parameters)
    teams = [(environment.create_rating(*rating),) for rating in zip(mean, sd, strict=True)]
    own = best_ms(5 * repeats, lambda: trueskill.rate(mean, sd, [0, 1, 2], draw_probability=0.1, **parameters))
    theirs = best_ms(5 * repeats, lambda: environment.rate(teams, ranks=[0, 1, 2]))

    settings = default_config("method", "espl_evolution")
    prompt = SystemPrompt("Solve it.", tuple(f"Principle {number}: check it. " * 5 for number in range(principles)))
    limits = Limits(principles + 2, settings.principle_chars, settings.most_edits)
    operators = OperatorPrompts(limits, {}, local_edits=settings.local_edits, rollout_chars=settings.rollout_chars)
    episodes = [_episode(problem, number) for problem in range(problems) for number in range(settings.group)]
    step = best_ms(max(1, repeats // 20), lambda: _step(settings, operators, prompt, episodes))
    of = f"{problems} problems, {principles} principles"
    return [
        Row("TrueSkill update of 3 system prompts", own, "ms", "<= 0.3", own <= 0.3),
        Row("... by the trueskill package", theirs, "ms", "", None),
        # 5 % of a second: no step of a model worth training is as short
        Row(f"evolution of a step but its models, {of}", step, "ms", "<= 50", step <= 50),
    ]


def _step(settings: Any, operators: OperatorPrompts, prompt: SystemPrompt, episodes: list[Episode]) -> None:
    """Do all that a step does beside its model calls: select, rate, reflect, edit, cross over."""
    population = Population([prompt], settings)
    for number in range(settings.window):
        population.add_mutant(prompt, population.latest, number)
    drawn: list[Member] = population.select(np.random.default_rng(0), 1)
    population.rate({member.id: 0.1 * number for number, member in enumerate(drawn)})
    lessons = []
    for group in find_contrasts(episodes):
        summaries = []
        for episode in group:
            operators.summary(prompt, episode)
            summaries.append(read_summary(_reply("Then it checks. " * 100)))
        operators.critique(prompt, group, summaries)
        lessons.append(operators.read_lesson(prompt, _edits()))
    operators.aggregation(prompt, lessons)
    operators.patch_by_reply(prompt, _edits())
    phi = np.random.default_rng(0).random((len(drawn), len(lessons)))
    operators.crossover(drawn, phi, [problem_text(episode) for episode in episodes[:: settings.group]])


def _episode(problem: int, number: int) -> Episode:
    """Return a rollout of 5,000 tokens or so."""
    asked = Asked(
        Problem(id=str(problem), stratum="", data={}),
        Prompt(messages=({"role": "user", "content": "A question. " * 50},)),
    )
    text, right = "So we try the next case. " * 800, number % 2 == 0
    return Episode(asked, (_reply(text),), Response(text=text, answer="1"), Reward(float(right), {}, right), number, "")


def _edits() -> Reply:
    return _reply(msgspec.json.encode({"analysis": "Some check and some do not. " * 20, "edits": EDITS}).decode())


def _reply(text: str) -> Reply:
    completion = Completion(text=text, finish_reason="stop", tokens=5_000)
    return Reply(completions=(completion,), prompt_tokens=1_000, seconds=1.0)
