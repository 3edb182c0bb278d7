"""evorun as a model provider of inspect_ai: `inspect eval TASK --model evorun/MODEL -M engine=vllm`.

Agents and tools of inspect_ai then run on evorun's engines. Each call is recorded in a journal before it is used, so
that a repeated evaluation with the same folder repeats its calls without a model, and counts against a budget.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessage,
    ChatMessageAssistant,
    GenerateConfig,
    ModelAPI,
    ModelOutput,
    ModelUsage,
    modelapi,
)
from inspect_ai.tool import ToolCall, ToolChoice, ToolInfo
from inspect_ai.util import LimitExceededError

from evorun.cli.plain import composed
from evorun.cli.quoting import write_value
from evorun.errors import ConfigError
from evorun.models.base import Message, Reply, Request, Sampling
from evorun.models.config import ModelConfig, ServedModel
from evorun.models.lazy import LazyModel
from evorun.runner.served import read_engine, served_by
from evorun.runner.typed import typed
from evorun.runs.budget import BudgetConfig, Meter
from evorun.runs.call_keys import CallKey
from evorun.runs.candidates import SHARED
from evorun.runs.effects import JournaledModel, Traffic
from evorun.runs.journal import Journal
from evorun.runs.journal_file import JOURNAL, digest_request
from evorun.runs.records import write_json
from evorun.runs.streams import call_seed
from evorun.tasks.prompt_files import PromptFiles
from evorun.tasks.tool_calls import Tool, format_tools, read_calls, without_calls, write_call

ROLE = "inspect"
FOLDER = "outputs/inspect"
"""Folder of the journals, unless `-M folder=` names another."""
PROMPTS = Path(__file__).parent / "prompts"
MAX_TOKENS = 2048
"""Completion tokens of a call, unless the evaluation sets a limit (ours: what inspect_ai gives other providers)."""
USAGE = "usage.json"
"""Calls and tokens of an evaluation so far, recorded ones included."""


@modelapi(name="evorun")
class EvorunAPI(ModelAPI):  # type: ignore[misc]  # inspect_ai is not installed where types are checked
    """A model of evorun's, on one of its engines, behind a journal and a budget."""

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig | None = None,
        folder: str | None = None,
        **settings: Any,
    ) -> None:
        """Compose the settings. Raises ConfigError in one line.

        settings: evorun's keys, such as engine, engine.base_urls, model.path, budget.calls and seed. folder: of the
        journal.
        """
        super().__init__(model_name, base_url, None, [], config or GenerateConfig())
        if base_url is not None or api_key is not None:
            raise ConfigError("expected no base_url and no api_key; set -M engine=server and -M engine.base_urls=[URL]")
        # A text is in the syntax of the command line already.
        written = {key: value if isinstance(value, str) else write_value(key, value) for key, value in settings.items()}
        values = composed([f"model={model_name}", *(f"{key}={value}" for key, value in written.items())])
        self._served = served_by(
            ServedModel(typed(ModelConfig, values["model"], "model"), read_engine(values, "engine"))
        )
        self._budget = typed(BudgetConfig, values["budget"], "budget")
        given = [key for key in ("price", "calls_per_problem", "tokens_per_problem", "price_per_problem")
                 if getattr(self._budget, key) is not None]  # fmt: skip
        if given:
            raise ConfigError(
                f"budget.{given[0]}: expected budget.calls or budget.tokens, which hold for the evaluation"
            )
        if self._served.engine.simulated:
            raise ConfigError(
                "engine=simulated: expected an engine with a model; a simulated one knows evorun's tasks only"
            )
        self._seed = int(values["seed"])
        self._folder = Path(folder or f"{FOLDER}/{model_name}")
        self._prompts = PromptFiles((PROMPTS,), None)
        self._state: _Open | None = None

    async def generate(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> ModelOutput:
        """Answer from the journal, or ask the model. Raises LimitExceededError where the budget is spent."""
        told = [] if tool_choice == "none" else tools
        request = Request(
            messages=self._read(input, told, tool_choice),
            sampling=Sampling(
                temperature=1.0 if config.temperature is None else config.temperature,
                top_p=1.0 if config.top_p is None else config.top_p,
                max_tokens=config.max_tokens or MAX_TOKENS,
                stop=tuple(config.stop_seqs or ()),
                n=config.num_choices or 1,
            ),
            json_schema=config.response_schema.json_schema.model_dump(exclude_none=True)
            if config.response_schema
            else None,
        )
        state = self._opened()
        digest = digest_request(msgspec.json.encode((request.messages, request.sampling, config.seed))).hex()
        # Repeated requests, such as those of several epochs, are different calls.
        attempt, state.asked[digest] = state.asked[digest], state.asked[digest] + 1
        seed = call_seed(self._seed if config.seed is None else config.seed, ROLE, digest, attempt)
        state.require_budget(self._budget)
        reply = await state.model.complete(
            str(CallKey(SHARED, 0, ROLE, digest, attempt)), msgspec.structs.replace(request, seed=seed)
        )
        state.meter.charge(ROLE, reply)
        return self._write(reply, bool(told))

    def max_connections(self) -> int:
        """Return the calls at once: evorun's engines queue by themselves."""
        return 256

    def connection_key(self) -> str:
        return f"evorun/{self.model_name}"

    async def aclose(self) -> None:
        """Close the engine and the journal; a later call opens them again."""
        state, self._state = self._state, None
        if state is not None:
            await state.close(self._folder)

    def _opened(self) -> "_Open":
        loop = asyncio.get_running_loop()
        if self._state is None or self._state.loop is not loop:  # each evaluation has an event loop of its own
            if self._state is not None:
                self._state.journal.close()
            self._folder.mkdir(parents=True, exist_ok=True)
            served = self._served
            engine = LazyModel(served.engine.journal_name(served.model), lambda: served.engine.open(served.model))
            self._state = _Open(Journal(self._folder / JOURNAL), engine, loop)
        return self._state

    # --- messages ---

    def _read(
        self, messages: Sequence[ChatMessage], tools: Sequence[ToolInfo], choice: ToolChoice
    ) -> tuple[Message, ...]:
        """Return the messages with the tools in the system message. Raises ConfigError for content other than text."""
        read = []
        for message in messages:
            others = [] if isinstance(message.content, str) else [
                part.type for part in message.content if part.type not in ("text", "reasoning")
            ]  # fmt: skip
            if others:
                raise ConfigError(f"model evorun/{self.model_name}: expected messages of text, got {others[0]}")
            calls = [write_call(call.function, call.arguments) for call in getattr(message, "tool_calls", None) or ()]
            error = getattr(message, "error", None)
            text = f"error: {error.message}" if error is not None else message.text
            read.append(Message(role=message.role, content="\n".join(filter(None, (text, *calls)))))
        if tools:
            must = choice if isinstance(choice, str) else choice.name
            described = [
                Tool(tool.name, tool.description, tool.parameters.model_dump(exclude_none=True)) for tool in tools
            ]
            told = self._prompts.render("tools", tools=format_tools(described), choice=must)
            first = [read.pop(0)["content"]] if read and read[0]["role"] == "system" else []
            read.insert(0, Message(role="system", content="\n\n".join((*first, told))))
        return tuple(read)

    def _write(self, reply: Reply, has_tools: bool) -> ModelOutput:
        choices = []
        for completion in reply.completions:
            calls = read_calls(completion.text) if has_tools else []
            message = ChatMessageAssistant(
                content=without_calls(completion.text) if calls else completion.text,
                tool_calls=[
                    ToolCall(id=f"call_{number}", function=call.name or "unknown", arguments=call.arguments,
                             parse_error=call.error or None)
                    for number, call in enumerate(calls, 1)
                ] or None,
                source="generate",
                model=str(self.model_name),
            )  # fmt: skip
            stop = {"stop": "tool_calls" if calls else "stop", "length": "max_tokens", "overlong": "max_tokens"}
            refused = "model_length" if reply.outgrew_context else "content_filter"
            choices.append(
                ChatCompletionChoice(message=message, stop_reason=stop.get(completion.finish_reason, refused))
            )
        spent = reply.prompt_tokens, reply.completion_tokens
        usage = ModelUsage(input_tokens=spent[0], output_tokens=spent[1], total_tokens=sum(spent))
        return ModelOutput(model=self.model_name, choices=choices, usage=usage, time=reply.seconds, error=reply.error)


class _Open:
    """An evaluation's journal and engine, and what it has spent."""

    def __init__(self, journal: Journal, engine: LazyModel, loop: asyncio.AbstractEventLoop) -> None:
        self.journal, self.engine, self.loop = journal, engine, loop
        self.model = JournaledModel(engine, journal, Traffic())
        self.asked: Counter[str] = Counter()
        self.meter = Meter()
        self._begun = 0

    def require_budget(self, budget: BudgetConfig) -> None:
        """Count a call that begins. Raises LimitExceededError, which ends the sample, where the budget allows none."""
        spent = {"calls": self._begun, "tokens": self.meter.total.tokens}
        for name, value in spent.items():
            limit = getattr(budget, name)
            if limit is not None and value >= limit:
                message = f"evorun: budget.{name}={limit} is spent"
                raise LimitExceededError("custom", value=value, limit=limit, message=message)
        self._begun += 1

    async def close(self, folder: Path) -> None:
        """Close engine and journal, and write what the evaluation has spent."""
        await self.model.finish()
        await self.engine.close()
        self.journal.close()
        write_json(folder / USAGE, self.meter.total)
