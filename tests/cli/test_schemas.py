"""Every JSON document matches its schema, without additional members."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from cfgraph.cli.command_files import COMMANDS, CommandFiles
from cfgraph.cli.json_output import schema, schema_names
from tests.report_schemas import schemas

SCHEMAS = Path(__file__).parents[2] / "cfgraph" / "schemas"
WITHOUT = {"mcp"}  # it serves

SWITCH_OF_THREE = """
index = Placeholder() {dtype=int32, shape=[]}
x = Placeholder() {dtype=float32, shape=[]}
switch = _SwitchN(x, index) {T=float32, num_outs=3}
out = Neg(switch:1) {T=float32}
"""
LINES = {
    "show": [
        "show lstm.pb",
        "show lstm.pb --node lstm/Switch --deadness",
        "show lstm.pb --ops --frames --devices --functions",
        "show nested.pb --deadness --filter live:sometimes",
        "show cond_functional.pb --filter function:*",
        "show two.pb",
        "show saved_model",
    ],
    "ops": ["ops Stateless*", "ops switch", "ops NoSuchOp"],
    "check": ["check counter.pb deadness_mismatch.pb", "check faulty.graph", "check no.pb"],
    "convert-check": [
        "convert-check lstm.pb --for lite --no-run",
        "convert-check saved_model --for onnx --signature serving_default --no-run",
    ],
    "convert": ["convert counter.pb -o o.pbtxt", "convert counter.pb -o o.graph --verify"],
    "fmt": ["fmt --check other.graph faulty.graph", "fmt tidy.graph", "fmt counter.pb"],
    "lower": [
        "lower while_functional.pb -o o.pb --map-out names.json --verify",
        "lower counter.pb -o o.pb",
    ],
    "functionalize": [
        "functionalize counter.pb -o o.pb --map-out names.json --verify --feed n=3",
        "functionalize deadness_mismatch.pb -o o.pb --strict",
    ],
    "partition": [
        "partition counter.pb --devices cpu:0-1 --seed 7 -o o.pb --dump-placement p.toml",
        "partition counter.pb --devices cpu:0-1 --seed 7 -o o.pb --verify --feed n=3",
    ],
    "grad": [
        "grad cond_functional.pb --ys out -o o.pb --check --verify --map-out names.json",
        "grad lstm.pb --ys loss --xs W -o o.pb",
        "grad counter.pb --ys count --xs n -o o.pb",
    ],
    "cluster": [
        "cluster lstm.pb -o o.pb",
        "cluster lstm_grad.pb --explain --what-if StackPopV2",
        "cluster deadness_mismatch.pb --explain",
        "cluster deadness_mismatch.pb --deadness off --verify -o o.pb",
    ],
    "extract": [
        "extract counter.pb --outputs while/add --feed n=5 --iteration 2 -o o.pb",
        "extract counter.pb --outputs count --inputs n -o o.pb --map-out names.json",
        "extract counter.pb --outputs count --inputs while/add -o o.pb",
    ],
    "optimize": [
        "optimize lstm_grad.pb -o o.pb --map-out names.json",
        "optimize lstm.pb --fetch loss --only prune -o o.pb",
        "optimize cond_functional.pb --verify -o o.pb",
    ],
    "freeze": [
        "freeze counter.pb --fetch count --set n=3 --verify -o o.pb",
        "freeze counter.pb --fetch count --set n=3 -o o.pb",
        "freeze counter.pb -o o.pb",
    ],
    "reduce": [
        "reduce pair counter.pb other.graph --feed n=3 -o o.pb",
        "reduce command counter.pb -o o.pb false {}",
        "reduce command counter.pb -o o.pb true {}",
    ],
    "pipeline": [
        "pipeline while_functional.pb -p lower,partition{devices=cpu:0-1} -o o.pb --time-passes",
        "pipeline lstm.pb -p grad{ys=loss} -o o.pb --verify-each --dump-dir dumps",
        "pipeline deadness_mismatch.pb -p cluster{deadness=off} --verify-each -o o.pb",
        "pipeline lstm.pb -p lowr -o o.pb",
    ],
    "devices": ["devices"],
    "examples": ["examples example-tour", "examples example.pb"],
    "doctor": ["doctor", "doctor --bundle bug.zip", "doctor --with-constants"],
    "run": [
        "run counter.pb --feed n=3 --fetch count:0 --tap while/add --expect count=3",
        "run deadness_mismatch.pb --feed p=true --feed v=[1,2]",
        "run counter.pb --feed n=3 --expect count=4",
        "run counter.pb --feed n=3 --clock virtual --out count=@c.npy --trace-out t.json",
        "run counter.pb --feed n=3 --explain-engine",
        "run counter.pb --fetch nosuch",
        "run clustered.pb --feed W=f32[512,1024]:zeros --feed x=f32[1,32,256]:zeros --memory cpu:0",
    ],
    "record": ["record counter.pb -o c.npz --feed n=3 --cases 1", "record counter.pb -o c.txt"],
    "diff": [
        "diff counter.pb golden.npz",
        "diff counter.pb other.graph",
        "diff counter.pb other.graph --run --feed n=3",
        "diff counter.pb counter.pb --run --feed n=3",
        "diff lstm.pb lstm_grad.pb",
        "diff cond_functional.pb functions.graph",
        "diff cond_functional.pb while_functional.pb --by structure",
    ],
    "explain": [
        "explain CFG201",
        "explain deadness_mismatch.pb C",
        "explain lstm.pb lstm/Switch",
        "explain deadness_mismatch.pb C --feed p=true --feed v=[1,2]",
        "explain deadness_mismatch.pb p",
        "explain switch_of_three.graph out",
        "explain counter.pb /while/while_context",
        "explain counter.pb /while/while_context --run --feed n=3",
        "explain cond_functional.pb x y",
    ],
}
CASES = [line for lines in LINES.values() for line in lines]


@pytest.fixture(scope="module")
def folder(fixtures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Example graphs, including a faulty, a partitioned, and two different ones."""
    from cfgraph.cli import command_line as cli

    made = tmp_path_factory.mktemp("graphs")
    for file in (fixtures / "graphs").glob("*.pb"):
        (made / file.name).symlink_to(file)
    shutil.copy(fixtures / "errors" / "CFG201_tensors_of_two_loops.graph", made / "faulty.graph")
    shutil.copy(made / "faulty.graph", made / "tidy.graph")
    two = ["partition", str(made / "counter.pb"), "--devices", "cpu:0-1", "--seed", "7", "-q"]
    assert cli.run([*two, "-o", str(made / "two.pb")]) == 0
    clustered = ["-q", "-o", str(made / "clustered.pb")]
    assert cli.run(["cluster", str(made / "lstm.pb"), *clustered]) == 0
    (made / "saved_model").symlink_to(fixtures / "saved_model")
    (made / "switch_of_three.graph").write_text(SWITCH_OF_THREE)
    for source, name, old, new in (
        ("counter", "other", "= Less(", "= LessEqual("),
        ("cond_functional", "functions", "= Square(", "= Neg("),
    ):
        target = made / f"{name}.graph"
        assert cli.run(["convert", str(made / f"{source}.pb"), "-o", str(target)]) == 0
        target.write_text(target.read_text().replace(old, new))
    golden = str(made / "golden.npz")
    cli.run(["record", str(made / "counter.pb"), "-o", golden, "--feed", "n=3", "-q"])
    return made


def strict(found: Any) -> Any:
    """Return a schema that forbids additional members."""
    if isinstance(found, list):
        return [strict(item) for item in found]
    if not isinstance(found, dict):
        return found
    made = {key: strict(value) for key, value in found.items()}
    if found.get("properties") and found.get("type") == "object" and "$id" not in found:
        made.setdefault("additionalProperties", False)
    return made


def test_the_schemas_are_those_of_the_reports(update: bool) -> None:
    written = {
        name: json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
        for name, schema in schemas().items()
    }
    files = {SCHEMAS / f"{name}.json": text for name, text in written.items()}
    for file, text in files.items() if update else ():
        file.write_text(text, encoding="utf-8")
    outdated = [file.name for file, text in files.items() if file.read_text("utf-8") != text]
    assert outdated == [], "`pytest --update tests/cli/test_schemas.py` writes them"
    assert {*SCHEMAS.glob("*.json")} == {*files}


@pytest.mark.parametrize("line", CASES)
def test_a_document_is_as_its_schema_says(
    line: str, folder: Path, command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    done = command(*line.split(), "--json")
    found = done.json
    assert found["exit_code"] == done.code
    validator = jsonschema.Draft202012Validator(strict(schema(line.partition(" ")[0])))
    errors = [jsonschema.exceptions.best_match([e]) for e in validator.iter_errors(found)]
    reported = [f"{error.json_path}: {error.message}" for error in errors]
    assert not reported, "the document is not what its report declares"


def test_a_member_that_no_schema_lists_is_found(command: Any, counter: Path) -> None:
    found = command("check", counter, "--json").json
    found["summary"]["surprise"] = 1
    assert jsonschema.Draft202012Validator(schema("check")).is_valid(found)
    assert not jsonschema.Draft202012Validator(strict(schema("check"))).is_valid(found)


def test_every_command_has_a_schema() -> None:
    commands = set(CommandFiles(COMMANDS).below(""))
    assert set(schema_names()) == {*commands, "version"} - WITHOUT
    assert commands - WITHOUT == set(LINES)


@pytest.mark.parametrize("name", sorted(LINES))
def test_a_schema_is_one_and_refuses_what_is_none(name: str, command: Any) -> None:
    printed = command("--schema", name).json
    assert printed == schema(name)
    jsonschema.Draft202012Validator.check_schema(printed)
    validator = jsonschema.Draft202012Validator(printed)
    assert not validator.is_valid({})
    assert not validator.is_valid({"schema": "cfgraph.nosuch/1"})


def test_an_unknown_schema_is_a_usage_error(command: Any) -> None:
    done = command("--schema", "dif")
    assert (done.code, done.out) == (2, "")
    assert "did you mean 'diff'?" in done.err
    assert "version, cfgraph.toml" in command("--schema", "nope").err
