"""The OpenAPI 3.1 document of the API, made from the table of endpoints and the classes in it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec
import msgspec.inspect

import maos
from maos.views.activity import ActivityDocument
from maos.web.api import API, Endpoint
from maos.web.documents import ProblemDocument
from maos.web.guard import Touches
from maos.web.requests import Body, PageQuery, Query

REF = "#/components/schemas/{name}"
ERRORS = {
    "400": "The request cannot be executed as given.",
    "401": "No valid credential was sent.",
    "403": "The caller has no grant for it, or the request comes from another site.",
    "404": "There is no such thing.",
    "409": "Another process was faster, or it is not in a state for this.",
    "413": "The body is too large.",
    "415": "The body is not JSON.",
    "422": "A plan is not valid, or an Idempotency-Key was used for something else.",
    "429": "Too many requests.",
    "503": "The database is not available.",
}
VERSIONED = ("pauseRun", "resumeRun", "cancelRun", "updateRun", "retryTasks", "addTasks", "cancelTask", "skipTask",
             "makeCheckpoint", "rollBackRun", "forkRun", "mergeRun", "updateState")  # fmt: skip
KEYED = ("startRun", "forkRun", "sendMessage", "signalWorkflow", "updateState")


@cache
def document(endpoints: tuple[Endpoint, ...]) -> dict[str, Any]:
    """The document of some endpoints."""
    kinds: set[type[msgspec.Struct]] = {ProblemDocument, ActivityDocument}
    kinds |= {each for one in endpoints for each in (one.result, one.body, one.query) if each is not None}
    ordered = sorted(kinds, key=lambda each: each.__name__)
    components = schemas(ordered, REF)
    paths: dict[str, Any] = {}
    for each in endpoints:
        path = re.sub(r"\{(\w+):path\}", r"{\1}", each.path)
        paths.setdefault(path, {})[each.method.lower()] = _operation(each, components)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "maos",
            "version": maos.__version__,
            "description": "Runs of coding agents: look, answer, steer and go back in time. Times are microseconds "
            "since 1970. Errors are problem+json, with a hint what to do.",
        },
        "servers": [{"url": "/"}],
        "security": [{"token": []}, {"session": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "`maos token create NAME --role ROLE`"},
                "session": {"type": "apiKey", "in": "cookie", "name": "maos_session"},
            },
        },
    }


def schemas(kinds: Sequence[type[msgspec.Struct]], ref: str) -> dict[str, Any]:
    """The JSON schemas of classes by name. What the server sends has all fields, also those with a default."""
    _, found = msgspec.json.schema_components(kinds, ref_template=ref)
    given = {each.__name__ for base in (Body, Query, PageQuery) for each in base.__subclasses__()}
    given |= {each.__name__ for each in _structs(kinds) if each.__struct_config__.omit_defaults}
    for name, each in found.items():
        if name not in given and "properties" in each:
            each["required"] = list(each["properties"])
            for field in each["properties"].values():
                field.pop("default", None)
    return found


def _structs(kinds: Sequence[type[msgspec.Struct]]) -> set[type[msgspec.Struct]]:
    """Classes, and all that their fields are made of."""
    found: set[type[msgspec.Struct]] = set()
    left: list[Any] = list(msgspec.inspect.multi_type_info(kinds))
    while left:
        each = left.pop()
        if isinstance(each, msgspec.inspect.StructType):
            if each.cls not in found:
                found.add(each.cls)
                left += [field.type for field in each.fields]
            continue
        parts = [getattr(each, name, None) for name in ("type", "item_type", "key_type", "value_type")]
        left += [*filter(None, parts), *getattr(each, "types", ()), *getattr(each, "item_types", ())]
    return found


def _operation(endpoint: Endpoint, components: dict[str, Any]) -> dict[str, Any]:
    parts = [part for part in endpoint.path.removeprefix(API).split("/") if part]
    doc = " ".join((endpoint.handle.__doc__ or "").split())
    is_public = endpoint.on is Touches.NOTHING
    need = "Needs no credential." if is_public else f"Needs the verb {endpoint.verb} on: {endpoint.on}."
    found: dict[str, Any] = {
        "operationId": endpoint.name,
        "tags": [parts[0]],
        "summary": endpoint.summary,
        "description": f"{doc} {need}",
        "parameters": [*_parameters(endpoint, components), *_headers(endpoint)],
        "responses": _responses(endpoint),
        "x-verb": "none" if is_public else endpoint.verb,
        "x-on": endpoint.on,
    }
    if endpoint.body is not None:
        schema = {"$ref": REF.format(name=endpoint.body.__name__)}
        required = bool(components[endpoint.body.__name__].get("required"))
        found["requestBody"] = {"required": required, "content": {"application/json": {"schema": schema}}}
    if is_public:
        found["security"] = []
    return found


def _parameters(endpoint: Endpoint, components: dict[str, Any]) -> list[dict[str, Any]]:
    names = re.findall(r"\{(\w+)(?::path)?\}", endpoint.path)
    text = {"type": "string", "minLength": 1, "maxLength": 512}
    found: list[dict[str, Any]] = [{"name": name, "in": "path", "required": True, "schema": text} for name in names]
    if endpoint.query is not None:
        schema = components[endpoint.query.__name__]
        required: Sequence[str] = schema.get("required", ())
        for name, each in schema.get("properties", {}).items():
            described = dict(each)
            more = {"description": described.pop("description")} if "description" in described else {}
            found.append({"name": name, "in": "query", "required": name in required, "schema": described, **more})
    return found


def _headers(endpoint: Endpoint) -> list[dict[str, Any]]:
    found = []
    if endpoint.name in KEYED:
        what = "A repeated request with the same key changes nothing more."
        schema: dict[str, Any] = {"type": "string", "maxLength": 200}
        found.append(
            {"name": "Idempotency-Key", "in": "header", "required": False, "schema": schema, "description": what}
        )
    if endpoint.name in VERSIONED:
        what = 'The version that is expected, as an ETag such as "12"; 412 when it is at another. '
        what += "It is compared in the transaction of the change."
        schema = {"type": "string", "pattern": '^("[0-9]{1,18}"|[*])$'}
        found.append({"name": "If-Match", "in": "header", "required": False, "schema": schema, "description": what})
    if endpoint.name == "stream":
        what = "The id of the last event that arrived: those after it follow."
        schema = {"type": "string", "pattern": "^[0-9]{1,18}$"}
        found.append(
            {"name": "Last-Event-ID", "in": "header", "required": False, "schema": schema, "description": what}
        )
    return found


def _responses(endpoint: Endpoint) -> dict[str, Any]:
    if endpoint.result is None:
        schema: dict[str, Any] = {"type": "string"}
        done = {"description": "Server-sent events.", "content": {"text/event-stream": {"schema": schema}}}
    else:
        schema = {"$ref": REF.format(name=endpoint.result.__name__)}
        done = {"description": "Done.", "content": {"application/json": {"schema": schema}}}
    found: dict[str, Any] = {str(endpoint.status): done}
    problem = {"application/problem+json": {"schema": {"$ref": REF.format(name="ProblemDocument")}}}
    codes = dict(ERRORS)
    if endpoint.name in VERSIONED:
        codes["412"] = "It has changed since."
    for code, what in codes.items():
        found[code] = {"description": what, "content": problem}
    return found
