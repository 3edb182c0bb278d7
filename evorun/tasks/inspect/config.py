"""The settings of `task=inspect`: a function that returns an inspect_ai task, and which of its samples a run has."""

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from evorun.errors import ConfigError, DataError, EvorunError, first_line
from evorun.fields import NonNegativeInt
from evorun.tasks.base import LoadedTask, Problem, Provenance, Row
from evorun.tasks.benchmark import encode_content, hash_content
from evorun.tasks.functions import import_function
from evorun.tasks.inspect.task import (
    FORMS,
    InspectGrader,
    InspectTask,
    ModelGradedTask,
    Source,
    refuse_model,
    run_apart,
)
from evorun.tasks.loading import load_rows
from evorun.tasks.outside import GivenPromptsConfig, JudgedSimulator, Unsupported, find_form, join_messages, name_call
from evorun.tasks.text_task import TextTask

if TYPE_CHECKING:
    from evorun.tasks.inspect.replay import Replay

_REASONING = "One step after another, each of them checked. " * 15
"""As long as a simulated reply's: some scorers count every word of a reply against it."""


@dataclass(kw_only=True)
class InspectConfig(GivenPromptsConfig):
    """An inspect_ai task of one model call, drawn into problems, demonstrations and problems to train on."""

    task_class: ClassVar[type[TextTask]] = InspectTask

    function: str | None
    """The function that returns the task: package.module:function or FILE.py:function; it runs in this process."""
    arguments: dict[str, Any]
    """Arguments of the function."""
    scorer: NonNegativeInt
    """Index of the scorer, where the task has several."""
    value: str | None
    """Key of the scorer's value, where that is a mapping."""
    right_from: float
    """A reply with at least this value is right."""
    model_graded: bool
    """true: the scorer asks a model, and the gold judge answers (gold=MODEL)."""
    stratum: str | None
    """Key of the samples' metadata by which results are broken down."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.task_class = ModelGradedTask if self.model_graded else InspectTask  # type: ignore[misc]

    def load(self) -> LoadedTask:
        """Call the function, capture the prompts and draw. Raises ConfigError for a task that evorun cannot run.

        Raises DataError where the data set is too small.
        """
        problems, targets, samples, replay, repeated = self._read()
        selected, validation, training = self.split(problems, self.function or "")
        values = list(dict.fromkeys(tuple(targets[problem.id]) for problem in problems))
        decoys = [values[0], values[1] if len(values) > 1 else ("",)]
        source = Source(
            self._title, replay, {name: s.model_copy(update={"target": ""}) for name, s in samples.items()},
            decoys, self.reply or FORMS[0], self.right_from,
        )  # fmt: skip
        source = source._replace(form=self.reply or self._find_form(source, selected, targets))
        task = self._make_task(source)
        self._check_scorer(task, selected[0], targets)
        rows = [[self._row(task, problem, targets[problem.id]) for problem in part] for part in
                (selected, validation, training)]  # fmt: skip
        left_out = f", {repeated} repeated ones left out" if repeated else ""
        return load_rows(
            task,
            rows[0],
            validation=rows[1],
            training=rows[2],
            grader=InspectGrader(source, task, targets),
            simulator=JudgedSimulator,
            provenance=Provenance(
                source="benchmark",
                description=f"{len(selected)} of {len(problems)} samples of {self._title} by inspect_ai{left_out}",
                digest=hash_content([[row.problem, row.reference] for row in rows[0]]),
            ),
        )

    # --- reading ---

    @property
    def _title(self) -> str:
        return name_call(self.function, self.arguments)

    def _read(self) -> tuple[list[Problem], dict[str, Sequence[str]], dict[str, Any], "Replay", int]:
        """Return problems, targets, samples, the replay, and the number of samples that repeat an earlier one."""
        made = self._call()
        from evorun.tasks.inspect.replay import Replay

        problems, targets, samples, repeated = list[Problem](), dict[str, Sequence[str]](), dict[str, Any](), 0
        try:
            replay = Replay(made, scorer=self.scorer, value=self.value)
            prompts = run_apart(self._capture(replay, list(made.dataset)))
        except Unsupported as error:
            raise ConfigError(f"task.function={self.function}: {error}") from error
        except EvorunError:
            raise
        except Exception as error:
            raise ConfigError(f"task.function={self.function}: its solver failed: {first_line(error)}") from error
        known = set[object]()
        for number, (sample, messages) in enumerate(zip(made.dataset, prompts, strict=True), 1):
            name = str(number if sample.id is None else sample.id).replace("|", "/")
            group = (sample.metadata or {}).get(self.stratum) if self.stratum else "all"
            shown = [[message["role"], message["content"]] for message in messages]
            data = {"question": join_messages(shown), "messages": shown}
            problem = Problem(id=name, stratum=str(group), data=data)
            if (content := encode_content(problem)) in known:
                repeated += 1
                continue
            if name in samples:
                raise DataError(f"task.function={self.function}: expected samples of different ids, got '{name}' twice")
            known.add(content)
            problems.append(problem)
            samples[name] = sample
            targets[name] = [sample.target] if isinstance(sample.target, str) else list(sample.target)
        return problems, targets, samples, replay, repeated

    def _call(self) -> Any:
        """Return the inspect_ai task. Raises ConfigError in one line for what fails on the way."""
        if not self.function or ":" not in self.function:
            raise ConfigError(
                "task.function: expected package.module:function or FILE.py:function that returns an inspect_ai task, "
                f"got {self.function}"
            )
        if importlib.util.find_spec("inspect_ai") is None:
            raise ConfigError("task=inspect needs inspect_ai: pip install 'evorun[inspect]'")
        function: Callable[..., Any] = import_function("task.function", self.function)
        try:
            made = function(**self.arguments)
        except Exception as error:  # of the user's own code
            raise ConfigError(f"task.function={self.function}: cannot be called: {first_line(error)}") from error
        from inspect_ai import Task

        if not isinstance(made, Task):
            raise ConfigError(f"task.function={self.function}: expected an inspect_ai Task, got {made!r:.60}")
        return made

    async def _capture(self, replay: "Replay", samples: Sequence[Any]) -> list[Any]:
        if not samples:
            raise DataError(f"task.function={self.function}: expected samples, got none")
        prompts = [await replay.prompt(sample) for sample in samples]
        if await replay.prompt(samples[0]) != prompts[0]:
            raise Unsupported(
                "expected the same prompt each time, got another one: shuffle in its data set, with a fixed seed"
            )
        return prompts

    # --- answers ---

    def _make_task(self, source: Source) -> InspectTask:
        made = ModelGradedTask if self.model_graded else InspectTask
        return made(source, prompts=self.prompts, shown_reasoning_chars=self.shown_reasoning_chars)

    def _find_form(self, source: Source, problems: Sequence[Problem], targets: dict[str, Sequence[str]]) -> str:
        """Return the form in which most of the first samples' targets are right."""
        if self.model_graded:
            return "{reasoning}\n\n{answer}"
        return find_form(FORMS, lambda form: self._make_task(source._replace(form=form)), self._row, problems, targets)

    def _row(self, task: InspectTask, problem: Problem, target: Sequence[str]) -> Row:
        """Return the row; without an answer where no reply with the target is right."""
        if self.model_graded:
            return Row(problem, target[0], list(target))
        for answer in dict.fromkeys((", ".join(target), *target)):
            reply = task.parse(problem, task.write(problem, answer, _REASONING))
            if answer and task.score(problem, reply, target).correct:
                return Row(problem, answer, list(target))
        return Row(problem, None, list(target))

    def _check_scorer(self, task: InspectTask, problem: Problem, targets: dict[str, Sequence[str]]) -> None:
        """Refuse a scorer that asks a model unless it was said to, and one that was said to and does not."""
        asked = []

        async def ask(messages: Any) -> str | None:
            asked.append(messages)
            return None if self.model_graded else await refuse_model(messages)

        response = task.parse(problem, task.write(problem, targets[problem.id][0], _REASONING))
        grade = run_apart(task.replay(problem, response, targets[problem.id], ask))
        failure, _, missing = grade.detail.partition("PrerequisiteError: ")
        if missing and failure.startswith("scorer_error"):
            # It would fail at each reply, and so find all of them wrong.
            raise ConfigError(f"task.function={self.function}: its scorer lacks what it needs: {missing}")
        if self.model_graded and not asked:
            reason = f" ({grade.detail})" if grade.detail else ""
            raise ConfigError(
                f"task.model_graded=true: expected a scorer that asks a model, got one that asks none{reason}"
            )
        if not self.model_graded and grade.correct is None:
            raise ConfigError(
                f"task.function={self.function}: expected a scorer that scores each reply, got {grade.detail}"
            )
