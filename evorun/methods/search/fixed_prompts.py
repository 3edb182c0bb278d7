"""The problems answered under each of several given system prompts.

`evorun transplant` and `evorun delete-one` run it (`evorun.runner.prompt_studies`) and compare the prompts; by itself
it tests any prompts.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import msgspec

from evorun.errors import ConfigError, DataError
from evorun.fields import OneOf
from evorun.methods.base import DatasetLevel
from evorun.methods.context import RunContext
from evorun.methods.learning.evaluation import Evaluations, EvaluationSettings
from evorun.runs.candidates import GIVEN, SHARED, Candidate, Step
from evorun.runs.files import read_regular
from evorun.tasks.base import Problem, Task
from evorun.tasks.capabilities import SupportsSystemPrompts


class GivenPrompt(msgspec.Struct, frozen=True):
    """An entry of the file of prompts."""

    id: str
    text: str
    """Empty: the task's own prompt for an answer."""


@dataclass(kw_only=True)
class FixedPromptsConfig(EvaluationSettings):
    """Hyperparameters; `conf/method/fixed_prompts.yaml` gives each default and its source."""

    name: str
    prompts: str | None
    """File with a JSON list of `{"id": ..., "text": ...}`."""
    principles_in: Annotated[str, OneOf(("system", "user"))]
    """system | user: a text is the system prompt, or follows the problem in the user's message."""


class FixedPrompts(DatasetLevel):
    """Answers every problem under each prompt; each prompt is a step, in order."""

    name = "fixed_prompts"
    description = "each of several given system prompts, tested on the task's problems"
    regime = "problem_only"
    needs: ClassVar[tuple[type, ...]] = (SupportsSystemPrompts,)
    Config = FixedPromptsConfig
    config: FixedPromptsConfig

    def check(self, task: type[Task], validation: Sequence[Problem]) -> None:
        """Raise ConfigError where no file of prompts is given, DataError for an unusable one."""
        self._read_prompts()

    async def learn(self, ctx: RunContext) -> AsyncIterator[Mapping[str, Step]]:
        tests = Evaluations(ctx, self.config, after_problem=self.config.principles_in == "user")
        prompts = self._read_prompts()
        candidates = [
            Candidate(
                id=prompt.id, kind="system_prompt", generation=index, operator=GIVEN, text=prompt.text, answer=None
            )
            for index, prompt in enumerate(prompts)
        ]
        for index, prompt in enumerate(prompts):
            if ctx.shared.affordable(tests.max_calls, "evaluate") < tests.max_calls:
                ctx.warn(f"the budget ends before prompt '{prompt.id}': testing one takes {tests.max_calls} calls")
                break
            tested = await tests.evaluate(index, prompt.text)
            ctx.record(index, {}, candidates[: index + 1])
            yield tested

    def _read_prompts(self) -> list[GivenPrompt]:
        if not self.config.prompts:
            raise ConfigError(
                'method.prompts: expected a file with a JSON list of {"id": ..., "text": ...}, got none; set '
                "method.prompts=FILE"
            )
        path = Path(self.config.prompts)
        try:
            prompts = msgspec.json.decode(read_regular(path), type=list[GivenPrompt])
        except OSError as error:
            raise DataError(f"method.prompts: cannot read {path}: {error.strerror}") from error
        except msgspec.DecodeError as error:
            raise DataError(f'{path}: expected a JSON list of {{"id": ..., "text": ...}}: {error}') from error
        names = [prompt.id for prompt in prompts]
        if not names or len(set(names)) < len(names) or SHARED in names:
            raise DataError(f"{path}: expected prompts with distinct ids, got {names}")
        return prompts
