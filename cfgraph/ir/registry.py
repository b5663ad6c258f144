"""Registry of op definitions, loaded on demand through an index that `cfgraph.ops` installs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from threading import RLock
from typing import TYPE_CHECKING, Any, Final, Protocol

from cfgraph.errors import InvalidInput
from cfgraph.ir.attrs import AttrPlaceholder, EncodedAttr, Func, fits_kind, kind_text
from cfgraph.ir.dtypes import DType
from cfgraph.ir.role import Role

if TYPE_CHECKING:
    from cfgraph.ir.functions import FunctionDefinition
    from cfgraph.ir.signature import AttrDef, Signature


class TypedTensor(Protocol):
    """A tensor that is an input of a new node."""

    @property
    def name(self) -> str:
        """The name in messages."""

    @property
    def dtype(self) -> DType | None:
        """The element type, or None if it is unknown."""


# UTF-8, in which files have the names of ops, cannot encode it
_INTERNAL: Final = "\udc00"


class _Definitions(dict[str, Any]):
    """Op definitions by name, loaded on first lookup, with None for an unknown op."""

    def __init__(self) -> None:
        self.index: dict[str, str] = {}
        # of the ops that are only declared: the module that defines them, and the names so far
        self.declarations = ""
        self.declared: set[str] = set()
        # the ops that files declare, by name
        self.of_files: dict[str, FunctionDefinition] = {}
        self._lock = RLock()
        # definitions from unfinished imports, which other threads must not see yet
        self._staged: dict[str, Any] = {}
        self._imports = 0

    def __missing__(self, name: str) -> Any | None:
        module = self.index.get(name)
        if module is None:
            return self._declare(name)
        with self._lock:
            if name not in self and name not in self._staged:
                self._import(module)
            return self._staged.get(name) or self.get(name)

    def _declare(self, name: str) -> Any | None:
        with self._lock:
            if name not in self and self.declarations:
                definition = import_module(self.declarations).declared_op(name)
                if definition is not None:
                    self.declared.add(name)
                    self[name] = definition
            return self.get(name)

    def declare(self, name: str, signature: FunctionDefinition) -> bool:
        with self._lock:
            if self[name] is not None or not self.declarations:
                return False
            definition = import_module(self.declarations).op_of_file(name, signature)
            self.of_files[name] = signature
            self.declared.add(name)
            self[name] = definition
            return True

    def _import(self, module: str) -> None:
        self._imports += 1
        try:
            import_module(module)
        except BaseException:
            # a family that was interrupted is imported again from the start
            for name in [name for name, op in self._staged.items() if op.__module__ == module]:
                del self._staged[name]
            raise
        finally:
            self._imports -= 1
            if not self._imports:
                for name in list(self._staged):
                    self[name] = self._staged.pop(name)

    def register(self, name: str, definition: Any) -> None:
        module = definition.__module__
        if name in self.declared:  # a class replaces what TensorFlow's declaration stands for
            self.declared.remove(name)
            del self[name]
        if name in self or name in self._staged or self.index.get(name, module) != module:
            message = f"op {name!r} is defined twice"
            raise ValueError(message)
        target = self._staged if self._imports else self
        target[name] = definition


_definitions: Final = _Definitions()
# the definition of an op, or None if it is unknown
lookup: Final[Callable[[str], Any | None]] = _definitions.__getitem__
# inferred attributes of earlier nodes, by op, input types, and explicit attributes
_inferred_attrs: dict[Any, dict[str, Any]] = {}
_MAX_INFERRED_ATTRS: Final = 4096


class _OutputCounts(dict[str, int | None]):
    """The number of outputs by op, with None if an attribute determines it or the op is unknown."""

    def __missing__(self, op: str) -> int | None:
        definition = lookup(op)
        if definition is None:
            return None
        count: int | None = definition.parsed().simple_outputs
        self[op] = count
        return count


class _SingleOutputTypes(dict[str, tuple[DType | str, ...]]):
    """`Signature.single_types` by op, with an empty tuple for an unknown op."""

    def __missing__(self, op: str) -> tuple[DType | str, ...]:
        definition = lookup(op)
        if definition is None:
            return ()
        types: tuple[DType | str, ...] = definition.parsed().single_types
        self[op] = types
        return types


class _Roles(dict[str, Role | None]):
    """Roles by op, with None for an ordinary op; only those of known ops are stored."""

    def __missing__(self, op: str) -> Role | None:
        definition = lookup(op)
        if definition is None:
            return None
        role: Role | None = definition.role
        self[op] = role
        return role


_output_counts: Final = _OutputCounts()
_single_output_types: Final = _SingleOutputTypes()
# the role of an op by name, for loops over all nodes; None for an ordinary or unknown op
ROLES: Final = _Roles()


def register(name: str, definition: Any) -> None:
    """Register an op definition. Raises ValueError if the name is taken."""
    _definitions.register(name, definition)


def internal_name(name: str) -> str:
    """The name of an op that only passes make: no file contains it, and none can be written."""
    return f"{name}{_INTERNAL}"


def install_index(modules: Mapping[str, str]) -> None:
    """Add op names with their modules, which are imported on first lookup."""
    _definitions.index.update(modules)


def install_declarations(module: str) -> None:
    """Set the module whose function `declared_op` defines an op outside of the index, or not."""
    _definitions.declarations = module


def op_names() -> Iterable[str]:
    """The sorted names of all ops with a class, including ops whose modules are not loaded."""
    names = {*_definitions, *_definitions.index} - _definitions.declared
    return sorted(name for name in names if not name.endswith(_INTERNAL))


def can_declare(name: str) -> bool:
    """True for an op without a class and not of TensorFlow, also if a file declared it already."""
    if name in _definitions.index:
        return False
    return name in _definitions.of_files or lookup(name) is None


def declare(name: str, signature: FunctionDefinition) -> bool:
    """Define an op by its signature; False if it is known."""
    return _definitions.declare(name, signature)


def names_of_files() -> list[str]:
    """The names of the ops that files declare."""
    return sorted(_definitions.of_files)


def is_declared_as(name: str, signature: FunctionDefinition) -> bool:
    """True for an op that a file declares with this signature."""
    return _definitions.of_files.get(name) == signature


def default_attr(name: str, op: str, key: str) -> Any:
    """The default of an attribute of a node. Raises InvalidInput if there is none."""
    definition = lookup(op)
    attr = definition.parsed().attrs.get(key) if definition else None
    if attr is None or not attr.has_default:
        message = f"attribute {key!r} is missing"
        raise InvalidInput(message, node=name, code="CFG110")
    return attr.default


def output_types(op: str, attrs: Mapping[str, Any]) -> list[DType] | None:
    """The types of the outputs of an op, or None if it or an attribute is unknown."""
    definition = lookup(op)
    if definition is None:
        return None
    try:
        types: list[DType] = definition.parsed().output_types(attrs)
    except ValueError:
        return None
    return types


def input_types(op: str, attrs: Mapping[str, Any]) -> list[DType] | None:
    """The types that an op expects of its inputs, or None if it or an attribute is unknown."""
    definition = lookup(op)
    if definition is None:
        return None
    try:
        types: list[DType] = definition.parsed().input_types(attrs)
    except ValueError:
        return None
    return types


def output_count(op: str, attrs: Mapping[str, Any]) -> int | None:
    """The number of outputs of an op, or None if it or an attribute is unknown."""
    count = _output_counts[op]
    definition = lookup(op) if count is None else None
    if definition is None:
        return count
    try:
        counted: int = definition.parsed().output_count(attrs)
    except ValueError:
        return None
    return counted


def output_dtype(op: str, attrs: Mapping[str, Any], port: int) -> DType | None:
    """The type of one output of an op, or None if it is unknown."""
    single = _single_output_types[op]
    if port < len(single):
        declaration = single[port]
        dtype = attrs.get(declaration) if type(declaration) is str else declaration
        if type(dtype) is DType:
            return dtype
    definition = lookup(op)
    if definition is None:
        return None
    try:
        declared: DType | None = definition.parsed().output_type(port, attrs)
    except ValueError:
        return None
    return declared


def attribute_fault(op: str, attr: AttrDef, value: Any) -> tuple[str, str] | None:
    """The code and the message for a value that an op's declaration of the attribute rejects."""
    name = f"attribute {attr.name!r}"
    if not fits_kind(attr.kind, value):
        return "CFG113", f"{name} is {kind_text(value)}, {op} expects {attr.kind}"
    parts = value if isinstance(value, tuple) else (value,)
    # the declarations of a function come from the file and may be inconsistent
    allowed = attr.allowed if isinstance(attr.allowed, tuple) else None
    strange = [] if allowed is None else [part for part in parts if part not in allowed]
    if allowed is not None and strange:
        shown = ", ".join(map(_format_value, allowed))
        return "CFG114", f"{name} is {_format_value(strange[0])}, not one of {shown}"
    size = len(value) if isinstance(value, tuple) else value
    if attr.minimum is not None and type(size) is int and size < attr.minimum:
        problem = "has length" if isinstance(value, tuple) else "is"
        return "CFG115", f"{name} {problem} {size}, expected at least {attr.minimum}"
    return None


def _format_value(value: Any) -> str:
    if isinstance(value, bytes):
        return repr(value.decode("utf-8", "backslashreplace"))
    return str(value)


def require_attrs(name: str, op: str, attrs: Mapping[str, Any]) -> None:
    """Raise InvalidInput for an attribute with a value that the declaration of the op rejects."""
    definition = lookup(op)
    declared = {} if definition is None else definition.parsed().attrs
    for key, value in attrs.items():
        if key not in declared or isinstance(value, AttrPlaceholder | EncodedAttr):
            continue
        fault = attribute_fault(op, declared[key], value)
        if fault is not None:
            code, message = fault
            raise InvalidInput(message, node=name, code=code)


def applicable_attrs(op: str, attrs: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes that an op declares, with annotations; all for an op without declaration."""
    definition = lookup(op)
    declared = attrs if definition is None else definition.parsed().attrs
    return {key: value for key, value in attrs.items() if key in declared or key[:1] == "_"}


def without_lists(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes as nodes hold them: lists as tuples."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in attrs.items()}


def infer_attrs(
    name: str, op: str, inputs: Sequence[TypedTensor], explicit: Mapping[str, Any]
) -> dict[str, Any]:
    """Infer the attributes of a new node from its inputs.

    Lists become tuples. Raises InvalidInput if inputs or attributes do not match the signature.
    """
    definition = lookup(op)
    if definition is None:
        return without_lists(explicit)
    types = tuple([tensor.dtype for tensor in inputs])
    # what a function is called makes no difference
    values = [type(value) if type(value) is Func else value for value in explicit.values()]
    key = (op, types, *explicit, *values, *map(type, explicit.values())) if inputs else None
    try:
        known = _inferred_attrs.get(key) if key else None
    except TypeError:  # an unhashable attribute
        key = known = None
    if known is None:
        explicit = without_lists(explicit)
        known = _infer_and_check(name, op, definition.parsed(), inputs, types, explicit)
        if key:
            if len(_inferred_attrs) >= _MAX_INFERRED_ATTRS:
                _inferred_attrs.clear()
            _inferred_attrs[key] = known
    # explicit attributes win: equal cache keys may differ, as (1,) and (true,), or 0.0 and -0.0
    return {**known, **explicit}


def _infer_and_check(
    name: str,
    op: str,
    signature: Signature,
    inputs: Sequence[TypedTensor],
    types: Sequence[DType | None],
    explicit: Mapping[str, Any],
) -> dict[str, Any]:
    require_attrs(name, op, explicit)
    try:
        attrs = signature.infer(types, explicit)
        expected_types = signature.input_types(attrs)
    except ValueError as error:
        raise InvalidInput(f"{op}: {error}", node=name, code="CFG110") from None
    for slot, (actual, expected) in enumerate(zip(types, expected_types, strict=True)):
        if actual is None or actual is expected:
            continue
        if actual.base is not expected or expected.is_ref:
            message = (
                f"input {slot} is {inputs[slot].name} of type {actual}, {op} expects {expected}"
            )
            raise InvalidInput(message, node=name, hint="insert a Cast", code="CFG301")
    return attrs
