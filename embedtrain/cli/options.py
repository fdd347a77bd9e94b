"""A command's flags from its options: one parameter a field, its default the field's own, its words from `flags`."""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any


def with_options(
    kind: type[Any], flags: Mapping[str, Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Turn the parameter `options` of a command into the flags of the dataclass `kind`.

    `flags` gives the annotated type of a field's flag; a field without one keeps its default. The command is called with
    the options built from what was given.
    """
    shown = [field for field in dataclasses.fields(kind) if field.name in flags]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        parameters: list[inspect.Parameter] = []
        for parameter in inspect.signature(command).parameters.values():
            if parameter.name != "options":
                parameters.append(parameter)
                continue
            parameters += [
                inspect.Parameter(
                    field.name,
                    inspect.Parameter.POSITIONAL_OR_KEYWORD,
                    default=field.default,
                    annotation=flags[field.name],
                )
                for field in shown
            ]

        @functools.wraps(command)
        def run(**given: Any) -> None:
            options = kind(**{field.name: given.pop(field.name) for field in shown})
            command(options=options, **given)

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return decorate
