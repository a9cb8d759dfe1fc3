"""Whether a part keeps the contract of its slot, told before anything is built; and the fields that hold parts.

`PartSlot` annotates such a field. It looks at the `Config` of the part and at the class that `Config.build` says it
returns, and names in one line all that is missing or has the wrong form.
"""

import dataclasses
import functools
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

from pydantic import TypeAdapter, ValidationError
from torch import nn
from typing_extensions import get_protocol_members, is_protocol

from tokenfree.preprocess.common.errors import UserError
from tokenfree.preprocess.common.settings import Slot
from tokenfree.train.model.common.attention import Core
from tokenfree.train.model.common.slots import frame, trunk

_DECLARED = object()  # a member that only instances have


class Contract(NamedTuple):
    """What the parts of a slot need: protocols of the `Config` and of its module, and bases with what most answer."""

    config: type
    config_base: type
    module: type
    module_base: type = nn.Module


CONTRACTS = {
    "embedders": Contract(frame.EmbedderConfig, frame.EmbedderDefaults, frame.Embedder, frame.EmbedderModule),
    "downsamplers": Contract(
        frame.DownsamplerConfig, frame.DownsamplerDefaults, frame.Downsampler, frame.DownsamplerModule
    ),
    "upsamplers": Contract(frame.UpsamplerConfig, frame.UpsamplerDefaults, frame.Upsampler),
    "trunk.layers": Contract(trunk.LayerConfig, trunk.LayerDefaults, trunk.Layer),
    "trunk.attention": Contract(trunk.AttentionConfig, trunk.AttentionDefaults, trunk.Attention, Core),
    "trunk.positions": Contract(trunk.PositionsConfig, trunk.PositionsDefaults, trunk.Positions),
    "trunk.segments": Contract(trunk.SegmentsConfig, trunk.SegmentsDefaults, trunk.Segments),
}
"""By the titles of slots (see `Slot.title`)."""


@dataclasses.dataclass(frozen=True)
class PartSlot(Slot):
    """A `Slot` of the model, which refuses a part that does not keep the contract."""

    def config_class(self, name: str) -> type:
        """The `Config` of the variant `name`.

        Raises:
            ValueError: there is no such variant.
            UserError: it does not keep the contract of the slot; all that is missing or wrong is named.
        """
        config_class = super().config_class(name)
        problems = _found_problems(self.title, config_class)
        if problems:
            file, found = Path(inspect.getfile(config_class)).name, "; ".join(problems)
            raise UserError(f"{file} is no part for the slot {self.title}: {found} (see docs/add_a_part.md)")
        return config_class

    def field(self) -> Any:
        """A dataclass field for the slot, whose default is the `Config` of the variant `default`."""
        return dataclasses.field(default_factory=lambda: self.config_class(self.default)())


def contract_problems(slot: str, config_class: type) -> list[str]:
    """What the `Config` of a part and the module that it builds lack for `slot`, a key of `CONTRACTS`; a phrase each.

    Modules are judged by the class that `build` is annotated with: members that are set in `__init__` count where the
    class declares them.
    """
    contract = CONTRACTS[slot]
    problems = [*_form_problems(config_class), *_member_problems(config_class, contract.config, contract.config_base)]
    module = _returned(config_class)
    if module is not None:
        problems += _member_problems(module, contract.module, contract.module_base)
    elif "build" in _members(config_class):
        problems.append("Config.build does not say which torch.nn.Module it returns; annotate it with the class")
    return problems


@functools.cache
def _found_problems(slot: str, config_class: type) -> tuple[str, ...]:
    return tuple(contract_problems(slot, config_class))


def _form_problems(config_class: type) -> Iterator[str]:
    """What any `Config` has to be: settings, with the name of their file."""
    if "__pydantic_config__" not in vars(config_class):
        yield "Config is not decorated with @settings"
    name, file = _members(config_class).get("name"), config_class.__module__.rpartition(".")[2]
    if isinstance(name, str) and name != file:
        yield f"Config.name is {name!r}, not {file!r} as its file"


def _returned(config_class: type) -> type[nn.Module] | None:
    """The class that `build` says it returns."""
    build = _members(config_class).get("build")
    try:
        found = get_type_hints(build).get("return") if inspect.isfunction(build) else None
    except NameError:
        return None
    return found if inspect.isclass(found) and issubclass(found, nn.Module) else None


def _members(cls: type) -> dict[str, Any]:
    """What a class has or declares of its own, without what every class and every module has."""
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if base not in (object, nn.Module):
            found |= dict.fromkeys(inspect.get_annotations(base), _DECLARED)
            found |= vars(base)
    return found


def _member_problems(cls: type, protocol: type, base: type) -> Iterator[str]:
    """What `cls` lacks of `protocol`, some of which `base` has, and what of it has the wrong form."""
    members, required = _members(cls), get_protocol_members(protocol)
    for member, wanted in _members(protocol).items():
        if member not in required:
            continue
        name = "forward" if member == "__call__" else member  # a torch.nn.Module is called by way of it
        signature = inspect.signature(wanted) if inspect.isfunction(wanted) else None
        if name not in members:
            shown = name if signature is None else f"{name}({_shown(signature)})"
            yield f"{cls.__name__} lacks {shown}" + (f", which {base.__name__} has" if name in _members(base) else "")
        elif signature is not None:
            yield from _method_problems(f"{cls.__name__}.{name}", members[name], signature)
        elif isinstance(wanted, property):
            yield from _value_problems(f"{cls.__name__}.{name}", members[name], wanted)


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
