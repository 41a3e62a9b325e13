"""The routes of the API, each declared once, and the OpenAPI document made from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

import recollect
from recollect.hosts.service import admin, operations
from recollect.hosts.service import models as m
from recollect.hosts.service.requests import ApiRoute

PREFIX: Final = "/v1"
_DESCRIPTIONS: Final = {
    "space": "The space, percent-encoded; a tenant's own",
    "session": "The session, percent-encoded",
    "number": "Its number, from 1",
    "fact": "The fact's id",
    "tenant": "The tenant's id",
    "key": "The key's id",
}


_TENANT: Final = "/admin/tenants/{tenant}"
_SPACE: Final = "/spaces/{space}"
_SESSION: Final = f"{_SPACE}/sessions/{{session}}"
ROUTES: Final[tuple[ApiRoute, ...]] = (
    ApiRoute("POST", f"{_SESSION}/prepare", "write", operations.prepare, m.PrepareBody,
             idempotency="again"),
    ApiRoute("POST", f"{_SESSION}/observe", "write", operations.observe, m.ObserveBody,
             idempotency="kept", needs_space=True),
    ApiRoute("POST", f"{_SESSION}/ingest", "write", operations.ingest, m.IngestBody,
             idempotency="kept"),
    ApiRoute("POST", f"{_SESSION}/compact", "write", operations.compact, m.CompactBody,
             idempotency="kept"),
    ApiRoute("POST", f"{_SESSION}/undo", "write", operations.undo, idempotency="kept",
             to_the_end=True, needs_space=True),
    ApiRoute("GET", f"{_SESSION}/receipts", "read", operations.receipts, query=m.PageQuery),
    ApiRoute("GET", f"{_SESSION}/receipts/{{number}}", "read", operations.receipt),
    ApiRoute("GET", f"{_SESSION}/turns", "read", operations.turns, query=m.PageQuery),
    ApiRoute("GET", f"{_SESSION}/turns/{{number}}", "read", operations.replay),
    ApiRoute("GET", f"{_SPACE}/sessions", "read", operations.sessions, query=m.PageQuery),
    ApiRoute("POST", f"{_SPACE}/search", "read", operations.search, m.SearchBody),
    ApiRoute("GET", f"{_SPACE}/facts", "read", operations.facts, query=m.FactsQuery),
    ApiRoute("POST", f"{_SPACE}/facts", "write", operations.add_fact, m.FactBody,
             idempotency="kept", to_the_end=True),
    ApiRoute("DELETE", f"{_SPACE}/facts/{{fact}}", "forget", operations.forget_fact,
             query=m.FactForgetQuery, idempotency="kept", to_the_end=True),
    ApiRoute("POST", f"{_SPACE}/forget", "forget", operations.forget, m.ForgetBody,
             idempotency="kept", to_the_end=True),
    ApiRoute("GET", f"{_SPACE}/export", "read", operations.export, query=m.PageQuery),
    ApiRoute("GET", "/spaces", "read", operations.spaces, query=m.PageQuery),
    ApiRoute("DELETE", _SPACE, "forget", operations.delete, idempotency="kept", to_the_end=True),
    ApiRoute("GET", "/tenant", "read", operations.tenant),
    ApiRoute("GET", "/audit", "admin", operations.audit, query=m.PageQuery),
    ApiRoute("GET", "/admin/tenants", "operator", admin.tenants, query=m.PageQuery),
    ApiRoute("POST", "/admin/tenants", "operator", admin.create_tenant, m.TenantBody,
             idempotency="kept"),
    ApiRoute("GET", _TENANT, "operator", admin.show_tenant),
    ApiRoute("POST", f"{_TENANT}/limits", "operator", admin.set_limits, m.LimitsBody,
             idempotency="again"),
    ApiRoute("DELETE", _TENANT, "operator", admin.delete_tenant, idempotency="kept",
             to_the_end=True),
    ApiRoute("GET", f"{_TENANT}/keys", "operator", admin.keys),
    ApiRoute("POST", f"{_TENANT}/keys", "operator", admin.create_key, m.KeyBody),
    ApiRoute("POST", f"{_TENANT}/keys/{{key}}/rotate", "operator", admin.rotate_key, m.RotateBody),
    ApiRoute("DELETE", f"{_TENANT}/keys/{{key}}", "operator", admin.revoke_key,
             idempotency="again"),
    ApiRoute("GET", "/admin/audit", "operator", admin.operator_audit, query=m.PageQuery),
)  # fmt: skip


_STATUSES: Final[Mapping[str, str]] = {
    "400": "The request cannot be read",
    "401": "No valid key",
    "403": "The key lacks the scope, or a quota of the tenant is reached",
    "404": "Not found",
    "409": "The same request is being carried out, or something was written meanwhile",
    "413": "It is too large",
    "415": "The body is not JSON",
    "422": "Invalid, or the Idempotency-Key was used for another request",
    "429": "A budget of the tenant is spent, or too many of its requests wait: see Retry-After",
    "500": "A defect of Recollect",
    "503": "The store is down, or the node is busy: see Retry-After",
    "504": "The request took too long",
}


def openapi() -> dict[str, Any]:
    types = {route.answer for route in ROUTES} | {route.body for route in ROUTES if route.body}
    types |= {m.ProblemAnswer, m.HealthAnswer}
    names = sorted(types, key=lambda answer_type: answer_type.__name__)
    _, schemas = msgspec.json.schema_components(names, ref_template="#/components/schemas/{name}")
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(PREFIX + route.path, {})[route.method.lower()] = _operation(route)
    for path, description in (
        ("/healthz", "Report that the process is alive."),
        ("/readyz", "Report whether to send requests to this node."),
    ):
        paths[path] = {
            "get": {
                "operationId": path[1:],
                "summary": description,
                "security": [],
                "responses": {
                    "200": _json("It does", "HealthAnswer"),
                    "503": _json("Not now", "HealthAnswer"),
                },
            }
        }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Recollect",
            "version": recollect.__version__,
            "description": (
                "Memory for LLM agents, for the tenants of a service. Points in time are seconds "
                "since the epoch. A node with the extra `mcp` also speaks the Model Context "
                "Protocol, at `POST /v1/spaces/{space}/mcp`, with the same keys."
            ),
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "security": [{"key": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            "schemas": schemas,
            "responses": {
                status: {
                    "description": text,
                    "content": {
                        "application/problem+json": {
                            "schema": {"$ref": "#/components/schemas/ProblemAnswer"}
                        }
                    },
                }
                for status, text in _STATUSES.items()
            },
        },
    }


def _operation(route: ApiRoute) -> dict[str, Any]:
    description = (route.call.__doc__ or "").strip()
    operation: dict[str, Any] = {
        "operationId": getattr(route.call, "__name__", ""),
        "summary": description.splitlines()[0],
        "description": f"Needs the scope `{route.scope}`.",
        "parameters": list(_parameters(route)),
        "responses": {
            "200": _json("Done", route.answer.__name__),
            **{status: {"$ref": f"#/components/responses/{status}"} for status in _STATUSES},
        },
    }
    if route.body is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {
                "application/json": {
                    "schema": {"$ref": f"#/components/schemas/{route.body.__name__}"}
                }
            },
        }
    return operation


def _json(description: str, name: str) -> dict[str, Any]:
    schema = {"$ref": f"#/components/schemas/{name}"}
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _parameters(route: ApiRoute) -> Iterator[dict[str, Any]]:
    for name in [part[1:-1] for part in route.path.split("/") if part.startswith("{")]:
        schema: dict[str, Any] = {"type": "string", "minLength": 1, "maxLength": 512}
        if name == "number":
            schema = {"type": "integer", "minimum": 1}
        yield _parameter("path", name, _DESCRIPTIONS[name], schema, required=True)
    (reference,), components = msgspec.json.schema_components([route.query])
    for name, schema in components[reference["$ref"].rsplit("/", 1)[1]]["properties"].items():
        yield _parameter("query", name, schema.pop("description"), schema, required=False)
    description = "Cancel the request after this many seconds, at most 120"
    schema = {"type": "number", "minimum": 1, "maximum": 120}
    yield _parameter("header", "X-Request-Timeout", description, schema)
    if route.idempotency != "none":
        description = "Send the same key with a retry: the request runs once"
        schema = {"type": "string", "pattern": "^[!-~]{1,255}$"}
        yield _parameter("header", "Idempotency-Key", description, schema)


def _parameter(
    place: str, name: str, description: str, schema: dict[str, Any], **options: bool
) -> dict[str, Any]:
    return {"name": name, "in": place, **options, "description": description, "schema": schema}
