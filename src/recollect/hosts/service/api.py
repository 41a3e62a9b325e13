"""The routes of the API, each declared once, and the OpenAPI document made from them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import msgspec

import recollect
from recollect.core.values.tenant import KeyScope
from recollect.hosts.service import admin, operations
from recollect.hosts.service import models as m
from recollect.hosts.service.requests import Call

Method: TypeAlias = Literal["GET", "POST", "DELETE"]
Operation: TypeAlias = Callable[[Call], Awaitable[m.ApiAnswer]]
Idempotency: TypeAlias = Literal["none", "again", "kept"]
"""How a request with a used Idempotency-Key is answered. "none": a read runs again. "again": the
request runs again, which changes nothing. "kept": the client gets the first answer."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRoute:
    """A path, a method, and its operation."""

    method: Method
    path: str
    scope: KeyScope
    call: Operation
    answer: type[m.ApiAnswer]
    body: type[m.ApiBody] | None = None
    query: type[m.ApiBody] = m.NoQuery
    idempotency: Idempotency = "none"
    counted: bool = True
    """True if requests count against the tenant's budgets."""
    needs_space: bool = False
    """True if the operation writes only to an existing space."""
    to_the_end: bool = False
    """True if a request with an Idempotency-Key is finished even if the client disconnects. Nodes
    cannot detect a partial run, which must not be repeated."""

    @property
    def operation(self) -> str:
        return self.call.__name__


def _admin(
    method: Method, path: str, call: Operation, answer: type[m.ApiAnswer], **options: Any
) -> ApiRoute:
    return ApiRoute(
        method=method, path=f"/admin{path}", scope="operator", call=call, answer=answer,
        counted=False, **options,
    )  # fmt: skip


_TENANT: Final = "/tenants/{tenant}"
_SESSION: Final = "/spaces/{space}/sessions/{session}"
ROUTES: Final[tuple[ApiRoute, ...]] = (
    ApiRoute(
        method="POST", path=f"{_SESSION}/prepare", scope="write", call=operations.prepare,
        body=m.PrepareBody, answer=m.PreparedAnswer, idempotency="again",
    ),
    ApiRoute(
        method="POST", path=f"{_SESSION}/observe", scope="write", call=operations.observe,
        body=m.ObserveBody, answer=m.ObservedAnswer, idempotency="kept", needs_space=True,
    ),
    ApiRoute(
        method="POST", path=f"{_SESSION}/ingest", scope="write", call=operations.ingest,
        body=m.IngestBody, answer=m.IngestedAnswer, idempotency="kept",
    ),
    ApiRoute(
        method="POST", path=f"{_SESSION}/compact", scope="write", call=operations.compact,
        body=m.CompactBody, answer=m.CompactedAnswer, idempotency="kept",
    ),
    ApiRoute(
        method="POST", path=f"{_SESSION}/undo", scope="write", call=operations.undo,
        answer=m.UndoneAnswer, idempotency="kept", to_the_end=True, needs_space=True,
    ),
    ApiRoute(
        method="GET", path=f"{_SESSION}/receipts", scope="read", call=operations.receipts,
        query=m.PageQuery, answer=m.ReceiptsAnswer,
    ),
    ApiRoute(
        method="GET", path=f"{_SESSION}/receipts/{{number}}", scope="read",
        call=operations.receipt, answer=m.ReceiptAnswer,
    ),
    ApiRoute(
        method="GET", path=f"{_SESSION}/turns", scope="read", call=operations.turns,
        query=m.PageQuery, answer=m.TurnsAnswer,
    ),
    ApiRoute(
        method="GET", path=f"{_SESSION}/turns/{{number}}", scope="read", call=operations.replay,
        answer=m.ReplayAnswer,
    ),
    ApiRoute(
        method="GET", path="/spaces/{space}/sessions", scope="read", call=operations.sessions,
        query=m.PageQuery, answer=m.SessionsAnswer,
    ),
    ApiRoute(
        method="POST", path="/spaces/{space}/search", scope="read", call=operations.search,
        body=m.SearchBody, answer=m.FoundAnswer,
    ),
    ApiRoute(
        method="GET", path="/spaces/{space}/facts", scope="read", call=operations.facts,
        query=m.FactsQuery, answer=m.FactsAnswer,
    ),
    ApiRoute(
        method="POST", path="/spaces/{space}/facts", scope="write", call=operations.add_fact,
        body=m.FactBody, answer=m.FactWrittenAnswer, idempotency="kept", to_the_end=True,
    ),
    ApiRoute(
        method="DELETE", path="/spaces/{space}/facts/{fact}", scope="forget",
        call=operations.forget_fact, query=m.FactForgetQuery, answer=m.CertificateAnswer,
        idempotency="kept", to_the_end=True,
    ),
    ApiRoute(
        method="POST", path="/spaces/{space}/forget", scope="forget", call=operations.forget,
        body=m.ForgetBody, answer=m.ForgottenAnswer, idempotency="kept", to_the_end=True,
    ),
    ApiRoute(
        method="GET", path="/spaces/{space}/export", scope="read", call=operations.export,
        query=m.PageQuery, answer=m.ExportAnswer,
    ),
    ApiRoute(
        method="GET", path="/spaces", scope="read", call=operations.spaces, query=m.PageQuery,
        answer=m.SpacesAnswer,
    ),
    ApiRoute(
        method="DELETE", path="/spaces/{space}", scope="forget", call=operations.delete,
        answer=m.CertificateAnswer, idempotency="kept", to_the_end=True,
    ),
    ApiRoute(
        method="GET", path="/tenant", scope="read", call=operations.tenant, answer=m.TenantAnswer,
        counted=False,
    ),
    ApiRoute(
        method="GET", path="/audit", scope="admin", call=operations.audit, query=m.PageQuery,
        answer=m.AuditAnswer,
    ),
    _admin("GET", "/tenants", admin.tenants, m.TenantsAnswer, query=m.PageQuery),
    _admin("POST", "/tenants", admin.create_tenant, m.TenantItem, body=m.TenantBody,
           idempotency="kept"),
    _admin("GET", _TENANT, admin.show_tenant, m.TenantItem),
    _admin("POST", f"{_TENANT}/limits", admin.set_limits, m.TenantItem, body=m.LimitsBody,
           idempotency="again"),
    _admin("DELETE", _TENANT, admin.delete_tenant, m.TenantDeletedAnswer, idempotency="kept",
           to_the_end=True),
    _admin("GET", f"{_TENANT}/keys", admin.keys, m.KeysAnswer),
    _admin("POST", f"{_TENANT}/keys", admin.create_key, m.KeyMadeAnswer, body=m.KeyBody),
    _admin("POST", f"{_TENANT}/keys/{{key}}/rotate", admin.rotate_key, m.KeyMadeAnswer,
           body=m.RotateBody),
    _admin("DELETE", f"{_TENANT}/keys/{{key}}", admin.revoke_key, m.KeyItem, idempotency="again"),
    _admin("GET", "/audit", admin.operator_audit, m.OperatorAuditAnswer, query=m.PageQuery),
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
