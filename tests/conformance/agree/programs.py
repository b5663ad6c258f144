"""Random structured programs of TensorFlow, drawn and built at once.

A program has slots of fixed types, and its statements assign to them. Both forms of control flow
trace each block once, so that a seed is one program. An order token that is passed from effect to
effect makes the result independent of the schedule.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow

from tests.conformance.agree.expressions import ExpressionWriter, Slot, is_float

tf: Any = tensorflow.compat.v1

FLOATS = ("float32", "float64", "float16", "bfloat16")
OTHERS = ("int32", "int64", "int8", "uint8", "bool", "complex64")
_ORDER = Slot("order", "int32", "scalar")
# of an element-wise function, so that values stay small
_LIMIT = 3


@dataclass
class Program:
    """A graph of TensorFlow, its tensors by role, and arrays for its placeholders."""

    graph: Any
    feeds: list[dict[str, Any]]
    fetches: list[str]
    init: str
    ys: list[str]
    xs: list[str]
    # TensorFlow's gradients of each order, or the reason why it has none
    gradients: list[list[str]] = field(default_factory=list)
    refusal: str = ""


Env = dict[Slot, Any]


class ProgramWriter:
    """Writes blocks of random statements into TensorFlow's default graph."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.budget = self.random.choice((2, 3, 4, 5, 8))
        self.dtype = self.random.choice(FLOATS[:2] * 2 + FLOATS[2:])
        self.length = self.random.choice((0, 1, 2, 3))
        self.dynamic = self.random.random() < 0.5
        self.slots = self._slots()
        self.expressions = ExpressionWriter(self.random, self.slots, self.length)
        self.variable: Any = None
        self.variable_slot = self.slots[0]

    def _slots(self) -> list[Slot]:
        draw = self.random
        slots = [
            Slot("i", "int32", "scalar"),
            Slot("x", self.dtype, "scalar"),
            Slot("v", self.dtype, "vector"),
            Slot("p", "bool", "scalar"),
        ]
        extra = [Slot("j", draw.choice(OTHERS), "scalar"), Slot("m", self.dtype, "matrix")]
        extra += [
            Slot("w", draw.choice(OTHERS + FLOATS), "vector"),
            Slot("g", self.dtype, "growing"),
            Slot("y", draw.choice(FLOATS), "scalar"),
        ]
        return slots + draw.sample(extra, draw.randint(0, 3))

    def shape(self, slot: Slot) -> Any:
        """The static shape of a slot."""
        length = None if self.dynamic else self.length
        shapes = {"scalar": [], "vector": [length], "matrix": [2, length], "growing": [None]}
        return tensorflow.TensorShape(shapes[slot.kind])

    def array(self, slot: Slot) -> Any:
        """A random value of a slot."""
        shape = self.expressions.dims(slot)
        values = [self.expressions.number(slot.dtype) for _ in range(int(np.prod(shape)))]
        return np.array(values, tensorflow.as_dtype(slot.dtype).as_numpy_dtype).reshape(shape)

    def add_variable(self) -> None:
        """Create a variable of the type of a slot in some programs."""
        slot = self.random.choice(self.slots)
        if self.random.random() < 0.4 and slot.kind != "growing":
            self.variable_slot = slot
            self.variable = tf.Variable(
                self.array(slot),
                use_resource=True,
                name="variable",
                shape=self.shape(slot),
                trainable=False,
            )

    def block(self, env: Env, targets: Sequence[Slot], depth: int) -> Env:
        """Write some statements that assign to targets; returns the values after them."""
        env = dict(env)
        for _ in range(self.random.randint(1, 3)):
            self.statement(env, targets, depth)
        return env

    def statement(self, env: Env, targets: Sequence[Slot], depth: int) -> None:
        """Write one statement."""
        self.budget -= 1
        forms: list[Callable[..., None]] = [self.assign, self.assign]
        if _ORDER in targets and self.variable is not None:
            forms.append(self.effect)
        if depth and self.budget > 0:
            forms += [self.branch, self.branch, self.repeat, self.repeat, self.choose]
            forms += [self.collect, self.scattered, self.collect_list, self.set_items]
            forms += [self.mapped, self.called, self.guarded]
        self.random.choice(forms)(env, targets, depth)

    def some(self, targets: Sequence[Slot]) -> list[Slot]:
        """A few of the targets, in their order."""
        chosen = self.random.sample(
            range(len(targets)), self.random.randint(1, min(3, len(targets)))
        )
        return [targets[place] for place in sorted(chosen)]

    def put(self, env: Env, slot: Slot, value: Any) -> None:
        """Assign a value, with the static shape of the slot."""
        if value.dtype != tensorflow.as_dtype(slot.dtype):
            message = f"{value} for {slot}"
            raise AssertionError(message)
        value.set_shape(self.shape(slot))
        env[slot] = value

    def put_all(self, env: Env, slots: Sequence[Slot], values: Any) -> None:
        """Assign several values."""
        for slot, value in zip(slots, _listed(values), strict=True):
            self.put(env, slot, value)

    # statements

    def assign(self, env: Env, targets: Sequence[Slot], depth: int) -> None:
        slot = self.random.choice([slot for slot in targets if slot is not _ORDER] or self.slots)
        self.put(env, slot, self.expressions.value(env, slot))

    def effect(self, env: Env, targets: Sequence[Slot], depth: int) -> None:
        """Change or read the variable, after all effects so far."""
        slot = self.variable_slot
        # a function drops control edges from tensors outside, but reads them through an Identity
        with tf.control_dependencies([tf.identity(env[_ORDER])]):
            form = self.random.choice(
                ("read", "assign", "assign" if slot.dtype == "bool" else "add")
            )
            if form == "read":
                value = self.variable.read_value()
            else:
                addend = self.expressions.value(env, slot)
                addend.set_shape(self.variable.shape)
                if form == "add":
                    changed = self.variable.assign_add(addend, read_value=False)
                else:
                    changed = self.variable.assign(addend, read_value=False)
                with tf.control_dependencies([changed]):
                    value = self.variable.read_value()
        with tf.control_dependencies([value]):
            self.put(env, _ORDER, tf.identity(env[_ORDER]))
        if slot in targets:
            self.put(env, slot, value)

    def branch(self, env: Env, targets: Sequence[Slot], depth: int) -> None:
        chosen = self.some(targets)
        test = self.expressions.test(env)
        self.put_all(env, chosen, tf.cond(test, *(self.writer(env, chosen, depth) for _ in "ab")))

    def choose(self, env: Env, targets: Sequence[Slot], depth: int) -> None:
        chosen = self.some(targets)
        blocks = [self.writer(env, chosen, depth) for _ in range(self.random.randint(1, 3))]
        if self.random.random() < 0.5:
            index = self.expressions.value(env, Slot("", "int32", "scalar"))
            values = tensorflow.switch_case(index, blocks)
        else:
            cases = [(self.expressions.test(env), block) for block in blocks]
            values = tf.case(cases, default=self.writer(env, chosen, depth))
        self.put_all(env, chosen, values)

    def writer(self, env: Env, chosen: Sequence[Slot], depth: int) -> Callable[[], list[Any]]:
        """A function that writes a block and returns the chosen slots."""

        def write() -> list[Any]:
            after = self.block(env, chosen, depth - 1)
            # a branch that returns a tensor of outside has to copy it
            return [tf.identity(after[slot]) for slot in chosen]

        return write

    def repeat(self, env: Env, targets: Sequence[Slot], depth: int) -> None:
        chosen, times = self.some(targets), self.random.randint(0, _LIMIT)
        is_tested = self.random.random() < 0.5

        def going(count: Any, *state: Any) -> Any:
            inner = {**env, **dict(zip(chosen, state, strict=True))}
            test = tf.less(count, times)
            return tf.logical_and(test, self.expressions.test(inner)) if is_tested else test

        def body(count: Any, *state: Any) -> list[Any]:
            inner = {**env, **dict(zip(chosen, state, strict=True))}
            after = self.block(inner, chosen, depth - 1)
            return [count + 1, *(after[slot] for slot in chosen)]

        self.put_all(
            env, chosen, self.loop(going, body, [env[slot] for slot in chosen], chosen)[1:]
        )

    def loop(
        self, going: Any, body: Any, start: list[Any], slots: Sequence[Slot | None]
    ) -> list[Any]:
        """A loop with a counter; slots give the shapes of the variables that follow."""
        shapes = [tensorflow.TensorShape(None) if s is None else self.shape(s) for s in slots]
        return list(
            tf.while_loop(
                going,
                body,
                [tf.constant(0), *start],
                shape_invariants=[tensorflow.TensorShape([]), *shapes],
                parallel_iterations=self.random.choice((1, 2, 10)),
                maximum_iterations=self.random.choice((None, None, 2)),
                swap_memory=self.random.random() < 0.2,
                return_same_structure=True,
            )
        )

    def collect(self, env: Env, targets: Sequence[Slot], depth: int) -> None:
        """Write into a TensorArray in a loop, and read it as a whole."""
        slot, times = self.element(), self.random.randint(0, _LIMIT)
        array = self.array_of(env, slot, times)
        chosen = self.some(targets)
        is_read_back = self.random.random() < 0.4

        def body(count: Any, array: Any, *state: Any) -> list[Any]:
            inner = {**env, **dict(zip(chosen, state, strict=True))}
            if is_read_back:
                self.put(inner, slot, array.read(tf.maximum(count - 1, 0)))
            array = array.write(count + is_read_back, self.expressions.value(inner, slot))
            after = self.block(inner, chosen, depth - 1)
            return [count + 1, array, *(after[slot] for slot in chosen)]

        if is_read_back:
            array = array.write(0, env[slot])
        state = [env[slot] for slot in chosen]
        _, array, *values = self.loop(
            lambda count, array, *state: count < times, body, [array, *state], [None, *chosen]
        )
        self.put_all(env, chosen, values)
        self.take_rows(env, targets, slot, self.rows_of(array, slot))

    def array_of(self, env: Env, slot: Slot, size: int) -> Any:
        """A TensorArray that has one more element than a loop writes, or grows."""
        is_dynamic = self.random.random() < 0.3
        return tensorflow.TensorArray(
            slot.dtype,
            0 if is_dynamic else size + 1,
            dynamic_size=is_dynamic,
            element_shape=self.shape(slot),
            clear_after_read=False,
            infer_shape=self.random.random() < 0.8,
        )

    def rows_of(self, array: Any, slot: Slot) -> Any:
        """The elements of a TensorArray, one per row; those that were not written are zeros."""
        if slot.kind == "vector" and self.random.random() < 0.3:
            return tf.reshape(array.concat(), [array.size(), -1])
        if self.random.random() < 0.3:
            return array.gather(tf.range(array.size())[::-1])
        return array.stack()

    def scattered(self, env: Env, targets: Sequence[Slot], depth: int) -> None:
        """Unstack, split, or scatter a tensor into a TensorArray, and sum what a loop reads."""
        vectors = [slot for slot in targets if slot.kind in ("vector", "growing")]
        if not vectors:
            self.repeat(env, targets, depth)
            return
        slot = self.random.choice(vectors)
        size = tf.size(env[slot])
        array = tensorflow.TensorArray(slot.dtype, size, infer_shape=True, element_shape=[])
        if self.random.random() < 0.5:
            array = array.unstack(env[slot])
        else:
            array = array.scatter(tf.range(size)[::-1], env[slot])
        element = Slot(f"{slot.name}_element", slot.dtype, "scalar")

        def body(count: Any, last: Any) -> list[Any]:
            inner = {**env, element: tf.reshape(array.read(count), [])}
            value = self.expressions.value(inner, element)
            return [count + 1, self.expressions.combined(last, value, slot.dtype)]

        start = self.expressions.constant(element)
        _, last = self.loop(lambda count, last: count < size, body, [start], [element])
        if slot.dtype == "bool":
            self.put(env, slot, tf.logical_xor(env[slot], last))
        else:
            self.put(env, slot, env[slot] + last)

    def collect_list(self, env: Env, targets: Sequence[Slot], depth: int) -> None:
        """Push onto a tensor list in a loop, and stack it, or pop its elements in another."""
        slot, times = self.element(), self.random.randint(0, _LIMIT)
        raw, shape = tensorflow.raw_ops, tf.shape(env[slot])
        dtype = tensorflow.as_dtype(slot.dtype)
        items = raw.EmptyTensorList(element_shape=shape, max_num_elements=-1, element_dtype=dtype)
        # in one more element than the loop pushes
        items = raw.TensorListPushBack(input_handle=items, tensor=env[slot])

        def push(count: Any, items: Any) -> list[Any]:
            value = self.expressions.value(env, slot)
            return [count + 1, raw.TensorListPushBack(input_handle=items, tensor=value)]

        def pop(count: Any, items: Any, last: Any) -> list[Any]:
            items, value = raw.TensorListPopBack(
                input_handle=items, element_shape=shape, element_dtype=dtype
            )
            value.set_shape(self.shape(slot))
            return [count + 1, items, self.expressions.combined(last, value, slot.dtype)]

        _, items = self.loop(lambda count, items: count < times, push, [items], [None])
        if self.random.random() < 0.5 and slot in targets:
            _, items, value = self.loop(
                lambda count, items, last: count < times, pop, [items, env[slot]], [None, slot]
            )
            self.put(env, slot, value)
        rows = raw.TensorListStack(
            input_handle=items, element_shape=shape, element_dtype=dtype, num_elements=-1
        )
        self.take_rows(env, targets, slot, rows)

    def set_items(self, env: Env, targets: Sequence[Slot], depth: int) -> None:
        """Set the items of a reserved tensor list in a loop, and gather them."""
        slot, times = self.element(), self.random.randint(1, _LIMIT)
        raw, shape = tensorflow.raw_ops, tf.shape(env[slot])
        dtype = tensorflow.as_dtype(slot.dtype)
        items = raw.TensorListReserve(
            element_shape=shape, num_elements=times + 1, element_dtype=dtype
        )
        chosen = self.some(targets)

        def body(count: Any, items: Any, *state: Any) -> list[Any]:
            inner = {**env, **dict(zip(chosen, state, strict=True))}
            items = raw.TensorListSetItem(
                input_handle=items, index=count, item=self.expressions.value(inner, slot)
            )
            value = raw.TensorListGetItem(
                input_handle=items, index=count, element_shape=shape, element_dtype=dtype
            )
            self.put(inner, slot, value)
            after = self.block(inner, chosen, depth - 1)
            return [count + 1, items, *(after[slot] for slot in chosen)]

        state = [env[slot] for slot in chosen]
        _, items, *values = self.loop(
            lambda count, items, *state: count < times, body, [items, *state], [None, *chosen]
        )
        self.put_all(env, chosen, values)
        indices = tf.range(times)[::-1]
        rows = raw.TensorListGather(
            input_handle=items, indices=indices, element_shape=shape, element_dtype=dtype
        )
        self.take_rows(env, targets, slot, rows)

    def element(self) -> Slot:
        """A slot whose values are elements of arrays and lists."""
        return self.random.choice([slot for slot in self.slots if slot.kind != "growing"])

    def take_rows(self, env: Env, targets: Sequence[Slot], slot: Slot, rows: Any) -> None:
        """Reduce stacked values to one, and assign it."""
        if slot in targets:
            self.put(env, slot, self.expressions.reduced(rows, slot.dtype))
        else:
            self.assign(env, targets, 0)

    def mapped(self, env: Env, targets: Sequence[Slot], depth: int) -> None:
        """Map a function over the elements of a vector."""
        vectors = [slot for slot in targets if slot.kind == "vector"]
        if not vectors:
            self.branch(env, targets, depth)
            return
        slot = self.random.choice(vectors)
        element = Slot(f"{slot.name}_element", slot.dtype, "scalar")

        def function(value: Any) -> Any:
            return self.expressions.value({**env, element: value}, element)

        def step(before: Any, value: Any) -> Any:
            return self.expressions.combined(before, function(value), slot.dtype)

        form = self.random.choice(("map", "scan", "fold"))
        start = self.expressions.constant(element)
        # these three convert the source of what they call, which takes longer than building it
        function, step = map(tensorflow.autograph.experimental.do_not_convert, (function, step))
        if form == "map":
            self.put(env, slot, tf.map_fn(function, env[slot], fn_output_signature=slot.dtype))
        elif form == "scan":
            self.put(env, slot, tf.scan(step, env[slot], initializer=start))
        else:
            folded = tf.foldl(step, env[slot], initializer=start)
            self.put(env, slot, env[slot] if slot.dtype == "bool" else env[slot] + folded)

    def guarded(self, env: Env, targets: Sequence[Slot], depth: int) -> None:
        """A value after a check, or one of which a factor has no gradient."""
        form = self.random.choice(("assert", "prevent"))
        floats = [slot for slot in targets if is_float(slot.dtype)]
        if form == "assert" or not floats:
            slot = self.random.choice(
                [slot for slot in targets if slot is not _ORDER] or self.slots
            )
            check = tf.debugging.Assert(tf.size(env[slot]) < 99, [env[slot]])
            with tf.control_dependencies([check]):
                self.put(env, slot, tf.identity(env[slot]))
            return
        slot = self.random.choice(floats)
        with tf.control_dependencies([tf.no_op()]):
            self.put(env, slot, tf.stop_gradient(env[slot]) * env[slot])

    def called(self, env: Env, targets: Sequence[Slot], depth: int) -> None:
        """Call a function whose body is a block."""
        chosen = self.some(targets)

        @tensorflow.function(autograph=False)
        def block(*values: Any) -> list[Any]:
            inner = {**env, **dict(zip(chosen, values, strict=True))}
            after = self.block(inner, chosen, depth - 1)
            return [tf.identity(after[slot]) for slot in chosen]

        self.put_all(env, chosen, block(*(env[slot] for slot in chosen)))


def _listed(values: Any) -> list[Any]:
    return list(values) if isinstance(values, (list, tuple)) else [values]


@contextmanager
def control_flow(*, v2: bool) -> Iterator[None]:
    """Build with functional control flow (v2) or with primitives (v1)."""
    before = tf.control_flow_v2_enabled()
    (tf.enable_control_flow_v2 if v2 else tf.disable_control_flow_v2)()
    try:
        yield
    finally:
        (tf.enable_control_flow_v2 if before else tf.disable_control_flow_v2)()


@contextmanager
def unoptimized_calls() -> Iterator[None]:
    """Build calls whose functions Grappler does not optimize, as a call carries its own options.

    It replaces Max(Tanh(x)) by Tanh(Max(x)), which is another value if x has no elements.
    """
    options, key = tensorflow.config.optimizer, "disable_meta_optimizer"
    before = options.get_experimental_options().get(key, False)
    options.set_experimental_options({key: True})
    try:
        yield
    finally:
        options.set_experimental_options({key: before})


def built(seed: int, order: int, *, v2: bool) -> Program:
    """The program of a seed, with TensorFlow's gradients up to an order."""
    writer = ProgramWriter(seed)
    with control_flow(v2=v2), tensorflow.Graph().as_default() as graph:
        inputs = {
            slot: tf.placeholder(slot.dtype, writer.shape(slot), name=slot.name)
            for slot in writer.slots
        }
        writer.add_variable()
        after = writer.block({**inputs, _ORDER: tf.constant(0)}, [*writer.slots, _ORDER], 2)
        outputs = {slot: tf.identity(after[slot], name=f"{slot.name}_out") for slot in after}
        program = Program(
            graph,
            [{inputs[slot].name: writer.array(slot) for slot in inputs} for _ in range(2)],
            [tensor.name for tensor in outputs.values()],
            tf.global_variables_initializer().name,
            [tensor.name for slot, tensor in outputs.items() if is_float(slot.dtype)],
            [tensor.name for slot, tensor in inputs.items() if is_float(slot.dtype)],
        )
        if writer.variable is not None:
            with tf.control_dependencies([outputs[_ORDER]]):
                last = writer.variable.read_value()
            program.fetches.append(tf.identity(last, name="variable_out").name)
        _add_gradients(program, order)
    return program


def dense_gradients(ys: Any, xs: Any) -> list[Any]:
    """TensorFlow's gradients as tensors: it returns the rows of a gather alone."""
    gradients = tf.gradients(ys, xs, unconnected_gradients="zero")
    return [tf.convert_to_tensor(gradient) for gradient in gradients]


def _add_gradients(program: Program, order: int) -> None:
    tensor = program.graph.get_tensor_by_name
    ys, xs = list(map(tensor, program.ys)), list(map(tensor, program.xs))
    try:
        for _ in range(order):
            ys = dense_gradients(ys, xs)
            program.gradients.append([y.name for y in ys])
    except Exception as error:
        # TensorFlow raises errors of many types
        program.refusal = f"{type(error).__name__}: {error}"
