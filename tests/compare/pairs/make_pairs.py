"""Write pairs of models whose relation is known: `python make_pairs.py pairs.zip`.

Needs TensorFlow with Keras 3. Each kind of model is built in variants of seven relations to its
first export; `pairs.json` in the archive has the files, the verdict, and the options of each pair.
"""

from __future__ import annotations

import json
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
VARIANTS = 3


class Version(NamedTuple):
    """One way to build a model: how its names, weights, seed, signatures, and inputs differ."""

    suffix: str = ""
    weights: int = 0
    nudge: bool = False
    seed: int = 0
    reverse: bool = False
    extra: bool = False


RELATIONS = {
    "equal": Version(),
    "renamed": Version(suffix="_other"),
    "retrained": Version(weights=1),
    "one_weight": Version(nudge=True),
    "another_seed": Version(seed=1),
    "another_order": Version(reverse=True),
    "one_input_more": Version(extra=True),
}


def weights(version: Version, variant: int, *shapes: tuple[int, ...]) -> list[Any]:
    """The values of all weights; a nudge changes one element of the last one."""
    rng = np.random.default_rng([variant, version.weights])
    arrays = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    if version.nudge:
        arrays[-1].flat[0] += 0.5
    return arrays


def signatures(version: Version, **functions: Any) -> dict[str, Any]:
    items = list(functions.items())
    return dict(reversed(items) if version.reverse else items)


def export_keras(folder: Path, version: Version, variant: int, layers: Callable[..., Any]) -> None:
    """Export a Keras model with two endpoints of one function; an extra input is a factor."""
    inputs, outputs = layers(version, variant)
    if version.extra:
        more = keras.Input((), name="scale")
        inputs, outputs = [*inputs, more], outputs * keras.ops.reshape(more, (-1, 1))
    model = keras.Model(inputs, outputs)
    values = weights(version, variant, *(tuple(item.shape) for item in model.weights_of_layers))
    for item, value in zip(model.weights_of_layers, values, strict=True):
        item.assign(np.abs(value) + 0.1 if "variance" in item.path else value)
    archive = keras.export.ExportArchive()
    archive.track(model)
    specs = [tf.TensorSpec((None, *item.shape[1:]), item.dtype, name=item.name) for item in inputs]
    for name in signatures(version, serve=0, serving_default=1):
        archive.add_endpoint(name, lambda *values: model(list(values), training=False), specs)
    archive.write_out(str(folder), verbose=False)


def _weights_of_layers(model: Any) -> list[Any]:
    return [item for item in model.weights if "seed" not in item.path]


keras.Model.weights_of_layers = property(_weights_of_layers)


def dense_dropout(version: Version, variant: int) -> Any:
    x = keras.Input((3 + variant,), name=f"features{version.suffix}")
    h = keras.layers.Dense(4, activation="relu", name=f"first{version.suffix}")(x)
    h = keras.layers.Dropout(0.5, seed=10 + version.seed)(h)
    return [x], keras.layers.Dense(2, name=f"second{version.suffix}")(h)


def lstm(version: Version, variant: int) -> Any:
    x = keras.Input((4, 3), name=f"steps{version.suffix}")
    h = keras.layers.LSTM(2 + variant, name=f"cell{version.suffix}")(x)
    h = keras.layers.Dropout(0.1, seed=version.seed)(h)
    return [x], keras.layers.Dense(2, name=f"head{version.suffix}")(h)


def normalized(version: Version, variant: int) -> Any:
    x = keras.Input((6, 6, 1), name=f"image{version.suffix}")
    h = keras.layers.Conv2D(2 + variant, 3, name=f"conv{version.suffix}")(x)
    h = keras.layers.BatchNormalization(name=f"norm{version.suffix}")(h)
    h = keras.layers.GaussianNoise(0.1, seed=version.seed)(keras.layers.Flatten()(h))
    return [x], keras.layers.Dense(2, name=f"head{version.suffix}")(h)


def embedding(version: Version, variant: int) -> Any:
    x = keras.Input((5,), dtype="int32", name=f"tokens{version.suffix}")
    h = keras.layers.Embedding(20 + variant, 3, name=f"table{version.suffix}")(x)
    h = keras.layers.SpatialDropout1D(0.1, seed=version.seed)(h)
    return [x], keras.layers.Dense(2)(keras.layers.GlobalAveragePooling1D()(h))


def keras_kind(layers: Callable[..., Any]) -> Callable[[Path, Version, int], None]:
    return lambda folder, version, variant: export_keras(folder, version, variant, layers)


def save(module: Any, folder: Path, version: Version, **functions: Any) -> None:
    tf.saved_model.save(module, str(folder), signatures=signatures(version, **functions))


def spec(name: str, shape: Any, dtype: Any = tf.float32, version: Version | None = None) -> Any:
    return tf.TensorSpec(shape, dtype, name=name + (version.suffix if version else ""))


def two_signatures(folder: Path, version: Version, variant: int) -> None:
    """An encoder and a decoder, neither of which is the default; two inputs of one type."""
    module = tf.Module()
    shapes = (3, 4 + variant), (4 + variant, 3)
    values = weights(version, variant, *shapes)
    names = ["down", "up"]
    made = {
        name: tf.Variable(value, name=name + version.suffix)
        for name, value in (zip(names, values, strict=True))
    }
    module.down, module.up = made["down"], made["up"]
    more = [spec("scale", ())] if version.extra else []

    @tf.function(input_signature=[spec("x", (None, 3), version=version), *more])
    def encode(x: Any, scale: Any = 1.0) -> Any:
        return {"code": tf.tanh(x @ module.down) * scale}

    @tf.function(input_signature=[spec("code", (None, shapes[0][1]), version=version)])
    def decode(code: Any) -> Any:
        return {"x": code @ module.up}

    save(module, folder, version, encode=encode, decode=decode)


def tables(folder: Path, version: Version, variant: int) -> None:
    """A vocabulary, and an embedding of its words."""
    module = tf.Module()
    words = tf.constant([f"w{n}" for n in range(4 + variant)])
    keys = tf.lookup.KeyValueTensorInitializer(words, tf.range(len(words), dtype=tf.int64))
    module.table = tf.lookup.StaticHashTable(keys, -1, name=f"vocabulary{version.suffix}")
    (value,) = weights(version, variant, (4 + variant, 2))
    module.rows = tf.Variable(value, name=f"rows{version.suffix}")
    more = [spec("scale", ())] if version.extra else []

    @tf.function(input_signature=[spec("words", (None,), tf.string, version), *more])
    def embed(words: Any, scale: Any = 1.0) -> Any:
        ids = tf.maximum(module.table.lookup(words), 0)
        return {"rows": tf.gather(module.rows, ids) * scale, "ids": ids}

    @tf.function(input_signature=[spec("words", (None,), tf.string, version)])
    def count(words: Any) -> Any:
        return {"known": tf.reduce_sum(tf.cast(module.table.lookup(words) >= 0, tf.int32))}

    save(module, folder, version, serving_default=embed, count=count)


def counter(folder: Path, version: Version, variant: int) -> None:
    """A signature that changes a variable, and a loop."""
    module = tf.Module()
    (value,) = weights(version, variant, (3,))
    module.total = tf.Variable(tf.zeros((3,)), name=f"total{version.suffix}")
    module.w = tf.Variable(value, name=f"w{version.suffix}")
    more = [spec("scale", ())] if version.extra else []

    @tf.function(input_signature=[spec("x", (3,), version=version), *more])
    def add(x: Any, scale: Any = 1.0) -> Any:
        for _ in tf.range(2 + variant):
            module.total.assign_add(x * module.w * scale)
        return {"total": module.total.read_value()}

    @tf.function(input_signature=[])
    def reset() -> Any:
        return {"zero": module.total.assign(tf.zeros((3,)))}

    save(module, folder, version, serving_default=add, reset=reset)


def ragged(folder: Path, version: Version, variant: int) -> None:
    """Words of texts as a RaggedTensor."""
    module = tf.Module()
    (value,) = weights(version, variant, (8, 2))
    module.rows = tf.Variable(value, name=f"rows{version.suffix}")
    more = [spec("scale", ())] if version.extra else []

    @tf.function(input_signature=[spec("text", (None,), tf.string, version), *more])
    def embed(text: Any, scale: Any = 1.0) -> Any:
        words = tf.strings.split(text)
        ids = tf.strings.to_hash_bucket_fast(words, 8)
        rows = tf.gather(module.rows, ids)
        return {"mean": tf.reduce_mean(rows, axis=1) * scale}

    @tf.function(input_signature=[spec("text", (None,), tf.string, version)])
    def lengths(text: Any) -> Any:
        return {"lengths": tf.strings.split(text).row_lengths()}

    save(module, folder, version, serving_default=embed, lengths=lengths)


def drawn(folder: Path, version: Version, variant: int) -> None:
    """Stateless noise, whose seed is a constant of the graph."""
    module = tf.Module()
    (value,) = weights(version, variant, (3,))
    module.w = tf.Variable(value, name=f"w{version.suffix}")
    more = [spec("scale", ())] if version.extra else []

    @tf.function(input_signature=[spec("x", (None, 3), version=version), *more])
    def noisy(x: Any, scale: Any = 1.0) -> Any:
        noise = tf.random.stateless_uniform((3,), seed=(variant, version.seed))
        return {"y": (x * module.w + noise) * scale}

    @tf.function(input_signature=[spec("x", (None, 3), version=version)])
    def plain(x: Any) -> Any:
        return {"y": x * module.w}

    save(module, folder, version, serving_default=noisy, plain=plain)


def dropped(folder: Path, version: Version, variant: int) -> None:
    """Dropout with a seed, which draws in each run; in a loop, and in two signatures."""
    module = tf.Module()
    (value,) = weights(version, variant, (3,))
    module.w = tf.Variable(value, name=f"w{version.suffix}")
    more = [spec("scale", ())] if version.extra else []

    @tf.function(input_signature=[spec("x", (4, 3), version=version), *more])
    def train(x: Any, scale: Any = 1.0) -> Any:
        h = tf.nn.dropout(x * module.w, 0.5, seed=5 + version.seed, name=f"drop{version.suffix}")
        for _ in tf.range(1 + variant):
            h += tf.random.normal((4, 3), seed=9 + version.seed, name=f"noise{version.suffix}")
        return {"y": h * scale}

    @tf.function(input_signature=[spec("x", (4, 3), version=version)])
    def plain(x: Any) -> Any:
        return {"y": x * module.w}

    save(module, folder, version, serving_default=train, plain=plain)


def references(folder: Path, version: Version, variant: int) -> None:
    """A graph of TensorFlow 1 with reference variables in a checkpoint, or resource variables."""
    folder.mkdir(parents=True)
    with tf.Graph().as_default() as graph:
        old, new = weights(version, variant, (3, 2), (2,))
        x = v1.placeholder(tf.float32, (None, 3), name=f"x{version.suffix}")
        options = {"use_resource": variant == 1}
        w = v1.get_variable(f"w{version.suffix}", initializer=old, **options)
        b = v1.get_variable(f"b{version.suffix}", initializer=new, **options)
        step = v1.get_variable("step", initializer=np.int64(version.seed), **options)
        y = tf.matmul(x, w) + b
        if version.extra:
            y *= v1.placeholder(tf.float32, (), name="scale")
        tf.identity(y, name="y")
        v1.assign_add(step, 1, name="count")
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            v1.train.Saver().save(session, str(folder / "model"), write_meta_graph=False)
        (folder / "graph.pb").write_bytes(graph.as_graph_def().SerializeToString())


def frozen(folder: Path, version: Version, variant: int) -> None:
    """A frozen graph with control flow of TensorFlow 1."""
    folder.mkdir(parents=True)
    v1.disable_control_flow_v2()
    with tf.Graph().as_default() as graph:
        (value,) = weights(version, variant, (3, 3))
        x = v1.placeholder(tf.float32, (None, 3), name=f"x{version.suffix}")
        w = tf.constant(value, name=f"w{version.suffix}")
        _, y = v1.while_loop(
            lambda i, _: i < 2 + variant, lambda i, h: (i + 1, tf.tanh(h @ w)), (0, x)
        )
        scale = v1.placeholder(tf.float32, (), name="scale") if version.extra else 1.0
        y = v1.cond(tf.reduce_sum(y) > 0, lambda: y * scale, lambda: y + scale)
        tf.identity(y, name="y")
        (folder / "graph.pb").write_bytes(graph.as_graph_def().SerializeToString())
    v1.enable_control_flow_v2()


class Kind(NamedTuple):
    """A builder, options of the comparison, and relations with another verdict than usual."""

    build: Callable[[Path, Version, int], None]
    options: tuple[str, ...] = ()
    verdicts: tuple[tuple[str, str], ...] = ()


WORDS = ("--feed", 'words=["w0","w3","none"]')
KINDS = {
    "dense_dropout": Kind(keras_kind(dense_dropout)),
    "lstm": Kind(keras_kind(lstm)),
    "normalized": Kind(keras_kind(normalized)),
    "embedding": Kind(keras_kind(embedding)),
    "two_signatures": Kind(two_signatures),
    "tables": Kind(tables, WORDS),
    "counter": Kind(counter),
    "ragged": Kind(ragged, ("--feed", 'text=["a b c d e f g h","b","c d"]')),
    "drawn": Kind(drawn, (), (("another_seed", "differs"),)),
    "dropped": Kind(dropped, (), (("another_seed", "differs"),)),
    "references": Kind(references, ("--fetch", "y")),
    "frozen": Kind(frozen, ("--fetch", "y")),
}
VERDICTS = {"retrained": "differs", "one_weight": "differs", "one_input_more": "error"}


def pairs(folder: Path) -> Iterator[dict[str, Any]]:
    """Write all models; yield the description of each pair."""
    for name, kind in KINDS.items():
        for variant in range(VARIANTS):
            base = f"{name}/{variant}/base"
            kind.build(folder / base, Version(), variant)
            for relation, version in RELATIONS.items():
                other = f"{name}/{variant}/{relation}"
                kind.build(folder / other, version, variant)
                verdict = dict(kind.verdicts).get(relation) or VERDICTS.get(relation, "agrees")
                yield {
                    "a": base,
                    "b": other,
                    "relation": relation,
                    "verdict": verdict,
                    "options": kind.options,
                }
            print(name, variant, flush=True)


def main(path: str) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        found = list(pairs(folder))
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            for file in sorted(item for item in folder.rglob("*") if item.is_file()):
                if file.name == "checkpoint":
                    continue  # it has paths of this machine
                info = zipfile.ZipInfo(str(file.relative_to(folder)))
                info.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(info, file.read_bytes())
            archive.writestr("pairs.json", json.dumps(found, indent=1))


if __name__ == "__main__":
    main(sys.argv[1])
