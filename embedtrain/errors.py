"""The ways a command ends that are not success; each carries its exit code and one sentence with the next step."""


class EmbedtrainError(Exception):
    """A known error: the message names the file, row, column or flag, and what to do. Exit code 1."""

    exit_code = 1


class UsageError(EmbedtrainError):
    """The command was called wrongly. Exit code 2."""

    exit_code = 2


class GateError(EmbedtrainError):
    """The work is done, and a condition the user set on its result is not met. Exit code 3."""

    exit_code = 3


def first_three(values: list[str]) -> str:
    """The first three of a list, for a sentence: `a, b, c` and `...` where there are more."""
    return ", ".join(values[:3]) + (", ..." if len(values) > 3 else "")
