"""The routes of the API, each declared once, and the OpenAPI document made from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

import recollect
from recollect.hosts.service import admin, operations
from recollect.hosts.service import models as m
from recollect.hosts.service.requests import ApiRoute

PREFIX: Final = "/v1"
_IDEMPOTENCY_KEY: Final = "Idempotency-Key"
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
        "parameters": [*_path_parameters(route), *_query_parameters(route), *_headers(route)],
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


def _path_parameters(route: ApiRoute) -> list[dict[str, Any]]:
    names = [part[1:-1] for part in route.path.split("/") if part.startswith("{")]
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": _DESCRIPTIONS[name],
            "schema": {"type": "integer", "minimum": 1}
            if name == "number"
            else {"type": "string", "minLength": 1, "maxLength": 512},
        }
        for name in names
    ]


def _query_parameters(route: ApiRoute) -> list[dict[str, Any]]:
    (schema,), components = msgspec.json.schema_components([route.query])
    fields = components[schema["$ref"].rsplit("/", 1)[1]]["properties"]
    return [
        {
            "name": name,
            "in": "query",
            "required": False,
            "description": field_schema["description"],
            "schema": {key: value for key, value in field_schema.items() if key != "description"},
        }
        for name, field_schema in fields.items()
    ]


def _headers(route: ApiRoute) -> list[dict[str, Any]]:
    headers = [
        {
            "name": "X-Request-Timeout",
            "in": "header",
            "description": "Cancel the request after this many seconds, at most 120",
            "schema": {"type": "number", "minimum": 1, "maximum": 120},
        }
    ]
    if route.idempotency != "none":
        headers.append(
            {
                "name": _IDEMPOTENCY_KEY,
                "in": "header",
                "description": "Send the same key with a retry: the request runs once",
                "schema": {"type": "string", "pattern": "^[!-~]{1,255}$"},
            }
        )
    return headers
