"""A run at the other end of a trainer's socket, as tests give its commands."""

from collections.abc import Sequence

from evorun.training.wire import Answer, Command, Figures, Finish


class GivenCommands:
    """Gives commands in turn, the end after the last one, and keeps the answers; stands for `Link`."""

    def __init__(self, commands: Sequence[Command]) -> None:
        self._commands = iter([*commands, Finish()])
        self.answers: list[Answer] = []

    def receive(self) -> Command:
        return next(self._commands)

    def send(self, answer: Answer) -> None:
        self.answers.append(answer)

    @property
    def figures(self) -> list[dict[str, float]]:
        return [answer.figures for answer in self.answers if isinstance(answer, Figures)]
