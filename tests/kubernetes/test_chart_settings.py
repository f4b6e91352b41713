"""The chart's schema knows each setting that a service has, with its type, and no other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from permille.controller.main import ControllerSettings
from permille.coverage.operator import OperatorSettings
from permille.coverage.service.settings import CoverageSettings
from permille.decoder.main import DecoderSettings
from permille.mesh.config import MeshConfig
from pydantic import BaseModel

SCHEMA = Path(__file__).parents[2] / "deploy" / "helm" / "permille" / "values.schema.json"
Schema = dict[str, Any]


class AllocatorSettings(BaseModel):
    """It has none."""


def of_type(told: Schema, defined: Schema) -> Schema:
    """Of what pydantic says of a value: its type, what it may be, what is in it."""
    if "$ref" in told:
        return of_type(defined[told["$ref"].rpartition("/")[2]], defined)
    if "anyOf" in told:
        (told,) = [one for one in told["anyOf"] if one != {"type": "null"}]
        return of_type(told, defined)
    found = {name: told[name] for name in ("type", "enum") if name in told}
    if "properties" in told:
        properties = {name: of_type(one, defined) for name, one in told["properties"].items()}
        return found | {"additionalProperties": False, "properties": properties}
    return found | {name: of_type(told[name], defined) for name in ("items", "additionalProperties") if told.get(name)}


def settings_of(model: type[BaseModel]) -> Schema:
    """The settings of a service as the chart's schema has to have them: what is a table or a list may be text."""
    told = model.model_json_schema()
    found = of_type({"properties": {}, **told}, told.get("$defs", {}))["properties"]
    for one in found.values():
        if one.get("type") in {"object", "array"}:
            one["type"] = [one["type"], "string"]
    return dict(sorted(found.items()))


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("settings", MeshConfig),
        ("allocatorSettings", AllocatorSettings),
        ("controllerSettings", ControllerSettings),
        ("coverageSettings", CoverageSettings),
        ("decoderSettings", DecoderSettings),
        ("operatorSettings", OperatorSettings),
    ],
)
def test_the_schema_of_a_service_has_its_settings_and_no_other(name: str, model: type[BaseModel]) -> None:
    schema = json.loads(SCHEMA.read_text())["$defs"][name]
    assert schema["properties"] == settings_of(model)
    assert schema["additionalProperties"] is False
