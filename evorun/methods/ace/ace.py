"""ACE, agentic context engineering (arXiv 2510.04618): a playbook that grows by reflection on labelled problems.

Section 3 and the authors' code. A generator answers under the playbook and names the entries that it relies on; a
reflector reviews the attempt and counts which entries helped or harmed; a curator adds what was missing.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import msgspec

from evorun.errors import ConfigError
from evorun.fields import Fraction, NonNegativeFloat, NonNegativeInt, PositiveInt
from evorun.methods.ace.playbook import SECTIONS, TAGS, Entry, Limits, Playbook, read_tags
from evorun.methods.base import DatasetLevel, SamplingSettings
from evorun.methods.context import RunContext
from evorun.methods.learning.evaluation import Evaluations, RepeatedEvaluationSettings
from evorun.models.base import Message, Reply, Sampling
from evorun.rollouts.calls import Role
from evorun.rollouts.episodes import Asked, Episode, Rollouts, max_turns_on
from evorun.runs.candidates import Candidate, Step
from evorun.runs.scores import primary_score
from evorun.tasks.base import Demonstration, Grade, Problem, Prompt, Task
from evorun.tasks.capabilities import SupportsSystemPrompts
from evorun.tasks.excerpts import excerpt
from evorun.tasks.json_text import object_schema, read_object, replace_lone_surrogates
from evorun.tasks.prompt_files import PromptFiles
from evorun.tasks.tags import escape_tags
from evorun.tasks.thinking import without_thinking

GENERATE, REFLECT, CURATE = "generate", "reflect", "curate"
FOLDER = Path(__file__).parent / "prompts"
ANALYSIS_CHARS = 4_000
"""Maximum length of a review (ours): under constrained decoding a model might otherwise never end it."""


@dataclass(kw_only=True)
class AceConfig(SamplingSettings, RepeatedEvaluationSettings):
    """Hyperparameters; `conf/method/ace.yaml` gives each default and its source."""

    name: str
    epochs: PositiveInt
    """Passes over the validation split, which the playbook is learned from."""
    problems: PositiveInt | None
    """Maximum problems to learn from, over all epochs; null: all."""
    rounds: NonNegativeInt
    """Reflections on a problem that is answered wrong, each followed by another attempt."""
    curator_every: PositiveInt
    """Problems between two calls of the curator."""
    labels: bool
    """Show reflections the right answer; false: only what the task and its grade say of the attempt."""
    remeasure: bool
    """Answer each problem once more after the curator, which decides nothing: a figure of the training."""
    additions: PositiveInt
    """Maximum entries that one reply of the curator adds."""
    entry_chars: PositiveInt
    playbook_chars: PositiveInt
    """Maximum characters of the playbook; additions beyond it are refused."""
    merge_from: Fraction | None
    """Similarity (cosine of word counts) from which two entries of a section are merged; null: none are."""
    shown_chars: PositiveInt | None
    """Maximum characters of an attempt, and of a problem, in reflections; null: no limit."""
    reflection_temperature: NonNegativeFloat
    reflection_max_tokens: PositiveInt
    operator_prompts: str | None
    """Folder of the user's own prompt files; each replaces that of the same name."""


class _Learned(NamedTuple):
    """The outcome of a problem that was learned from."""

    playbook: Playbook
    figures: dict[str, float]


class Ace(DatasetLevel):
    """Learns a playbook from the validation split, one problem after the other; all problems are answered under it.

    A problem takes 2 calls (generate, reflect) where the first attempt is right, and up to 1 + 2 `rounds` where it is
    wrong; beside these one call of the curator every `curator_every` problems, and one to measure.
    """

    name = "ace"
    description = "a playbook of advice with counters that reflection and a curator extend (ACE)"
    regime = "labels"
    needs: ClassVar[tuple[type, ...]] = (SupportsSystemPrompts,)
    roles: ClassVar[Mapping[str, Role]] = {REFLECT: Role("reflection"), CURATE: Role("reflection")}
    Config = AceConfig
    config: AceConfig

    @property
    def records_training(self) -> bool:
        return True  # it goes through training problems, and answers the run's before and after

    @property
    def setting_that_shows_answers(self) -> str | None:
        return "method.labels" if self.config.labels else None

    def check(self, task: type[Task], validation: Any) -> None:
        if not validation:
            raise ConfigError(
                f"method=ace learns from the validation split, which has no problems; {task.draw_help.more_validation}"
            )

    def max_calls_of_a_problem(self, turns: int) -> int:
        """Return the most calls that learning from one problem takes. turns: of an answer."""
        config = self.config
        attempts = 1 + config.rounds + config.remeasure
        return attempts * turns + max(config.rounds, 1) + 1

    async def learn(self, ctx: RunContext) -> AsyncIterator[Mapping[str, Step]]:
        """Answer all problems under the empty playbook, learn, and answer them again at the end and in between."""
        config, tests = self.config, Evaluations(ctx, self.config)
        learner = _Learner(ctx, config)
        order = [
            ctx.demonstrations[place]
            for epoch in range(config.epochs)
            for place in ctx.shared.rng("epoch", epoch).permutation(len(ctx.demonstrations))
        ][: config.problems]
        playbook, versions = Playbook(), [_make_candidate(0, learner.system_prompt(Playbook()))]
        turns = max(max_turns_on(ctx.shared.task, example.problem) for example in ctx.demonstrations)
        ctx.record(0, {}, versions)
        yield await tests.evaluate(0, learner.system_prompt(playbook))
        learned = evaluated = 0
        for step, example in enumerate(order, 1):
            evaluates = config.evaluates_after(step) and step < len(order)
            # The evaluation under the last playbook stays affordable.
            needed = self.max_calls_of_a_problem(turns) + (1 + evaluates) * tests.max_calls
            if ctx.shared.affordable(needed, GENERATE) < needed:
                ctx.warn(
                    f"the budget ends learning before problem {step} of {len(order)}, which may take {needed} calls"
                )
                break
            try:
                playbook, figures = await learner.learn(playbook, example, step, len(order))
            except _OutOfTokens:
                ctx.warn(f"the budget of tokens ends learning at problem {step} of {len(order)}")
                break
            learned, text = step, learner.system_prompt(playbook)
            if text != versions[-1].text:
                versions = [msgspec.structs.replace(version, survivor=False) for version in versions]
                versions.append(_make_candidate(step, text, versions[-1].id))
            ctx.record(step, figures, versions)
            ctx.save_artifact("playbook.json", [entry._asdict() for entry in playbook.entries])
            if evaluates:
                yield await tests.evaluate(step, text)
                evaluated = step
        if learned > evaluated:
            yield await tests.evaluate(learned, learner.system_prompt(playbook))


class _OutOfTokens(Exception):
    """The budget refused a call of a problem that had begun: a budget of tokens is spent at a rate that varies."""


class _Learner:
    """The generator, the reflector and the curator on one problem of the validation split."""

    def __init__(self, ctx: RunContext, config: AceConfig) -> None:
        """Raise ConfigError naming an unusable prompt file."""
        self._ctx = ctx
        self._config = config
        self._files = PromptFiles([FOLDER], config.operator_prompts, key="method.operator_prompts")
        self._limits = Limits(config.additions, config.entry_chars, config.playbook_chars)
        self._measure = primary_score(ctx.shared.task.scores)
        self._rollouts = Rollouts(ctx.shared, ctx.shared.task, GENERATE)
        self._reflection = Sampling(temperature=config.reflection_temperature, max_tokens=config.reflection_max_tokens)

    def system_prompt(self, playbook: Playbook) -> str:
        """Return the system prompt under a playbook: the task's own instruction while that is empty."""
        instruction: str = self._ctx.shared.task.seed_instruction()
        if not playbook.entries:
            return instruction
        return self._files.render("playbook", instruction=instruction, entries=playbook.text)

    async def learn(self, playbook: Playbook, example: Demonstration, step: int, total: int) -> _Learned:
        """Return the playbook after one problem, and the figures of the step."""
        config, reflection = self._config, ""
        episode, grade = await self._attempt(playbook, example, step, 0)
        first = last = self._utility(grade)
        # A right attempt is reflected on once, for the counters; a wrong one is tried again after each reflection.
        for number in range(max(config.rounds, 1)):
            reflection, playbook = await self._reflect(playbook, example, episode, grade, step, number)
            if first >= 1 or not config.rounds:
                break
            episode, grade = await self._attempt(playbook, example, step, 1 + number, reflection)
            last = self._utility(grade)
            if last >= 1:
                break
        figures = {"first_attempt": first, "last_attempt": last}
        if step % config.curator_every == 0:
            playbook, refused = await self._curate(playbook, example.problem, reflection, step, total)
            figures |= {f"additions_refused_{reason}": float(count) for reason, count in refused.items()}
            if config.merge_from is not None:
                playbook = playbook.merge_similar(config.merge_from)
        if config.remeasure:
            _, grade = await self._attempt(playbook, example, step, 1 + config.rounds)
            figures["attempt_after"] = self._utility(grade)
        figures |= {
            "entries": float(len(playbook.entries)),
            "helpful_tags": float(sum(entry.helpful for entry in playbook.entries)),
            "harmful_tags": float(sum(entry.harmful for entry in playbook.entries)),
        }
        return _Learned(playbook, figures)

    def _utility(self, grade: Grade) -> float:
        value = self._measure.value_in(grade)
        return 0.0 if value is None else self._measure.utility(value)

    async def _attempt(
        self, playbook: Playbook, example: Demonstration, step: int, index: int, reflection: str = ""
    ) -> tuple[Episode, Grade]:
        prompt: Prompt = self._ctx.shared.task.instructed_prompt(example.problem, self.system_prompt(playbook))
        if reflection:
            *before, last = prompt.messages
            again = self._files.render("retry", question=last["content"], reflection=reflection)
            prompt = msgspec.structs.replace(prompt, messages=(*before, Message(role=last["role"], content=again)))
        asked = [Asked(example.problem, prompt)]
        episodes = await self._rollouts.play(step, asked, self._config.sampling, indices=[index])
        if not episodes:
            raise _OutOfTokens
        [episode] = episodes
        return episode, await self._ctx.grade(example, episode.response)

    async def _reflect(
        self, playbook: Playbook, example: Demonstration, episode: Episode, grade: Grade, step: int, number: int
    ) -> tuple[str, Playbook]:
        """Return the review of an attempt, and the playbook with its counters."""
        # A request that the engine refused has no text.
        transcript = "" if episode.replies[-1].error else episode.transcript
        cited = playbook.find_cited(transcript)
        # An attempt that names no entry may still have used some.
        shown: list[Entry] = cited or list(playbook.entries)
        prompt = self._ask(
            "reflection",
            object_schema(
                analysis={"type": "string", "maxLength": ANALYSIS_CHARS},
                tags={
                    "type": "array",
                    "items": object_schema(
                        id={"type": "string", "enum": [f"B{entry.number}" for entry in shown] or ["B0"]},
                        tag={"type": "string", "enum": list(TAGS)},
                    ),
                    "maxItems": len(shown),
                },
            ),
            {"entries": [(entry.number, entry.text) for entry in shown]},
            problem=self._show(example.problem),
            attempt=excerpt(escape_tags(transcript), self._config.shown_chars),
            feedback=self._describe(example, episode, grade),
            cited=bool(cited),
            entries="\n".join(entry.line for entry in shown),
        )
        reply = await self._call(prompt, REFLECT, step, number)
        text = _text_of(reply)
        found = read_object(text, "analysis", "tags") or {}
        analysis = found.get("analysis")
        said = analysis if isinstance(analysis, str) else text
        return escape_tags(said)[:ANALYSIS_CHARS].strip(), playbook.tag(read_tags(found.get("tags"), shown))

    async def _curate(
        self, playbook: Playbook, problem: Problem, reflection: str, step: int, total: int
    ) -> tuple[Playbook, Mapping[str, int]]:
        """Return the playbook with the curator's additions, and the number of those refused, by reason."""
        limits = self._limits
        prompt = self._ask(
            "curation",
            object_schema(
                analysis={"type": "string", "maxLength": ANALYSIS_CHARS},
                additions={
                    "type": "array",
                    "items": object_schema(
                        section={"type": "string", "enum": list(SECTIONS)},
                        text={"type": "string", "minLength": 1, "maxLength": limits.entry_chars},
                    ),
                    "maxItems": limits.additions,
                },
            ),
            {"principles": [entry.text for entry in playbook.entries], "max_edits": limits.additions},
            entries=playbook.text,
            problem=self._show(problem),
            reflection=reflection,
            entry_count=len(playbook.entries),
            share_full=round(100 * len(playbook.text) / limits.playbook_chars),
            number=step,
            total=total,
            additions=limits.additions,
            sections=", ".join(SECTIONS),
            entry_chars=limits.entry_chars,
        )
        reply = await self._call(prompt, CURATE, step, 0)
        if reply.error is not None:
            return playbook, {"rejected": 1}
        additions = (read_object(_text_of(reply), "additions") or {}).get("additions")
        if not isinstance(additions, list):
            return playbook, {"not_json": 1}
        return playbook.add(additions, limits)

    def _show(self, problem: Problem) -> str:
        """Return the problem as the task's own prompt states it."""
        prompt: Prompt = self._ctx.shared.task.instructed_prompt(problem, self._ctx.shared.task.seed_instruction())
        said = "\n\n".join(message["content"] for message in prompt.messages if message["role"] != "system")
        return excerpt(said, self._config.shown_chars)

    def _describe(self, example: Demonstration, episode: Episode, grade: Grade) -> str:
        """Return what the reflector learns of an attempt: the task's own description, with or without the answer."""
        known = example if self._config.labels else None
        said: str = self._ctx.shared.task.reflection_record(example.problem, episode.response, known, grade)
        verdict = "" if grade.correct is None else f"The attempt was {'right' if grade.correct else 'wrong'}.\n\n"
        return excerpt(f"{verdict}{said}", self._config.shown_chars)

    def _ask(self, file: str, schema: Mapping[str, Any], hints: Mapping[str, Any], **values: Any) -> Prompt:
        message = Message(role="user", content=self._files.render(file, **values))
        return Prompt(messages=(message,), json_schema=dict(schema), hints={"role": f"ace_{file}", **hints})

    async def _call(self, prompt: Prompt, role: str, step: int, index: int) -> Reply:
        sampling = self._reflection
        replies = await self._ctx.shared.generate([prompt], role=role, step=step, sampling=sampling, indices=[index])
        if not replies:
            raise _OutOfTokens
        return replies[0]


def _text_of(reply: Reply) -> str:
    return "" if reply.error else replace_lone_surrogates(without_thinking(reply.completions[0].text))


def _make_candidate(step: int, text: str, parent: str | None = None) -> Candidate:
    return Candidate(
        id=f"{step}",
        kind="system_prompt",
        generation=step,
        operator="root" if parent is None else "curate",
        parents=() if parent is None else (parent,),
        text=text,
        answer=None,
        survivor=True,
    )
