"""Models that Keras exports, through the commands that `show` suggests."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow", reason="needs the extra `interop`")

pytestmark = [pytest.mark.interop, pytest.mark.slow]


def mobilenet() -> Any:
    return tf.keras.applications.MobileNetV2(input_shape=(96, 96, 3), weights=None, classes=10)


def lstm() -> Any:
    steps = tf.keras.Input((20, 8), name="steps")
    outputs = tf.keras.layers.Dense(1)(tf.keras.layers.LSTM(16)(steps))
    return tf.keras.Model(steps, outputs)


@pytest.mark.parametrize("make", [mobilenet, lstm])
@pytest.mark.parametrize("exporter", ["keras", "tensorflow"])
def test_a_model_of_keras_passes_every_suggestion(
    make: Any, exporter: str, command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tf.keras.utils.set_random_seed(1)
    model = make()
    if exporter == "keras":
        model.export("model", verbose=False)
    else:
        tf.saved_model.save(model, "model")
    shown = command("show", "model", "--json").json["result"]
    commands = [shlex.split(line)[1:] for line in shown["suggestions"]]
    verbs = [words[0] for words in commands]
    assert verbs == ["show", "lower", "diff", "grad", "run", "run"]
    assert len(shown["functional_loops"]) == (make is lstm)
    for words in commands:
        assert command(*words).code == 0, words
    (value,) = command(*commands[-1], "--full", "--json", "--out", "output_0=@y.npy").json[
        "result"
    ]["values"]
    assert value["shape"] == [1, model.output_shape[1]]
