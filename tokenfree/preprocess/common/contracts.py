"""Whether a part keeps the contract of its slot, told before anything is built.

It is asked of the settings of the part and of the class that their `build` says it returns; all that is missing or has
the wrong form is named in one line.
"""

import functools
import inspect
from collections.abc import Iterator
from typing import Any, NamedTuple, get_type_hints

from pydantic import PydanticUserError, TypeAdapter, ValidationError
from typing_extensions import get_protocol_members, is_protocol

_DECLARED = object()  # a member that only instances have


class Contract(NamedTuple):
    """What the parts of a slot need.

    Attributes:
        config: protocol of the settings.
        config_base: class with what most of them answer.
        built: protocol of what `build` makes; None: that is not looked into.
        built_base: class with what most of these answer.
        kind: class that they all must be of, whose own members are no answer.
    """

    config: type
    config_base: type
    built: type | None = None
    built_base: type = object
    kind: type = object


@functools.cache
def contract_problems(contract: Contract | None, config_class: type, name: str) -> tuple[str, ...]:
    """What the settings of the part `name`, and what they build, lack; a phrase each.

    What is built is judged by the class that `build` is annotated with: members that are set in `__init__` count where
    the class declares them. Without a contract settings alone are asked for.
    """
    return tuple(_problems(contract, config_class, name))


def _problems(contract: Contract | None, config_class: type, name: str) -> Iterator[str]:
    yield from _form_problems(config_class, name)
    if contract is None:
        return
    kind = contract.kind
    yield from _member_problems(config_class, contract.config, contract.config_base, kind)
    if contract.built is None:
        return
    built = _returned(config_class, kind)
    if built is not None:
        yield from _member_problems(built, contract.built, contract.built_base, kind)
    elif "build" in _members(config_class, kind):
        yield f"{config_class.__name__}.build does not say which {kind.__name__} it returns; annotate it with the class"


def _form_problems(config_class: type, name: str) -> Iterator[str]:
    """What the settings of any part have to be, with the name that recipes have for it."""
    shown = config_class.__name__
    if "__pydantic_config__" not in vars(config_class):
        yield f"{shown} is not decorated with @settings"
    else:
        try:
            get_type_hints(config_class)
            TypeAdapter(config_class)
        except (NameError, PydanticUserError) as error:
            yield f"the fields of {shown} have types that cannot be read from YAML: {str(error).splitlines()[0]}"
    found = _members(config_class).get("name")
    if "name" not in getattr(config_class, "__dataclass_fields__", {}):
        yield f"{shown} lacks the field name: str = {name!r}"
    elif isinstance(found, str) and found != name:
        source = "in the recipe" if "." in name else "its file"
        yield f"{shown}.name is {found!r}, not {name!r} as {source}"


def _returned(config_class: type, kind: type) -> type | None:
    """The class that `build` says it returns."""
    build = _members(config_class).get("build")
    try:
        found = get_type_hints(build).get("return") if inspect.isfunction(build) else None
    except NameError:
        return None
    return found if inspect.isclass(found) and issubclass(found, kind) else None


def _members(cls: type, kind: type = object) -> dict[str, Any]:
    """What a class has or declares of its own, without what every class and every `kind` has, and what is abstract."""
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if base not in (object, kind):
            found |= dict.fromkeys(inspect.get_annotations(base), _DECLARED)
            found |= vars(base)
    return {name: value for name, value in found.items() if not getattr(value, "__isabstractmethod__", False)}


def _member_problems(cls: type, protocol: type, base: type, kind: type) -> Iterator[str]:
    """What `cls` lacks of `protocol`, some of which `base` has, and what of it has the wrong form."""
    members, answered, required = _members(cls, kind), _members(base, kind), get_protocol_members(protocol)
    for member, wanted in _declared(protocol).items():
        if member not in required or member == "name":  # see `_form_problems`
            continue
        name = "forward" if member == "__call__" else member  # a torch.nn.Module is called by way of it
        signature = inspect.signature(wanted) if inspect.isfunction(wanted) else None
        if name not in members:
            shown = name if signature is None else f"{name}({_shown(signature)})"
            yield f"{cls.__name__} lacks {shown}" + (f", which {base.__name__} has" if name in answered else "")
        elif signature is not None:
            yield from _method_problems(f"{cls.__name__}.{name}", members[name], signature)
        elif isinstance(wanted, property):
            yield from _value_problems(f"{cls.__name__}.{name}", members[name], wanted)


def _declared(protocol: type) -> dict[str, Any]:
    """What a protocol and those that it extends say, in their order."""
    found: dict[str, Any] = {}
    for base in reversed(protocol.__mro__):
        found |= {**dict.fromkeys(inspect.get_annotations(base), _DECLARED), **vars(base)}
    return found


def _method_problems(name: str, found: Any, wanted: inspect.Signature) -> Iterator[str]:
    """That `found` cannot be called as `wanted` says."""
    if found is _DECLARED:
        return
    if not inspect.isfunction(found):
        yield f"{name} is no method"
        return
    parameters, signature = wanted.parameters.values(), inspect.signature(found)
    in_order = [None for parameter in parameters if parameter.kind < parameter.VAR_POSITIONAL]
    by_name = {parameter.name: None for parameter in parameters if parameter.kind == parameter.KEYWORD_ONLY}
    try:
        signature.bind(*in_order, **by_name)
    except TypeError:
        yield f"{name} takes ({_shown(signature)}), not ({_shown(wanted)})"


def _value_problems(name: str, found: Any, wanted: property) -> Iterator[str]:
    """That the value `found` of a class is not of the type that the property `wanted` has."""
    hint = get_type_hints(wanted.fget)["return"]
    if found is _DECLARED or isinstance(found, (property, functools.cached_property)) or is_protocol(hint):
        return
    try:
        TypeAdapter(hint).validate_python(found, strict=True)
    except ValidationError as error:
        reason = error.errors()[0]["msg"].replace("Input should", "should")
        yield f"{name} is {found!r}: {reason}"


def _shown(signature: inspect.Signature) -> str:
    """The parameters after `self`, by name."""
    return ", ".join(list(signature.parameters)[1:])
