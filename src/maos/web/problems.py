"""Errors as HTTP responses: problem+json (RFC 9457) with the message and the hint of the command line."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec
from starlette.responses import Response

from maos import errors
from maos.model.access import Unauthenticated
from maos.model.plan import BadPlan
from maos.web.documents import ProblemDocument

MEDIA_TYPE = "application/problem+json"
PROBLEMS_SHOWN_MAX = 200

STATUSES: tuple[tuple[type[errors.MaosError], int], ...] = (
    (Unauthenticated, 401),
    (errors.NotPermitted, 403),
    (errors.UntrustedStore, 403),
    (errors.NotFound, 404),
    (BadPlan, 422),
    (errors.InvalidInput, 400),
    (errors.Conflict, 409),
    (errors.LeaseLost, 409),
    (errors.KeyReused, 422),
    (errors.DiskFull, 507),
    (errors.StoreUnavailable, 503),
    (errors.Corrupt, 500),
    (errors.HistoryLost, 500),
    (errors.UnknownFormat, 500),
    (errors.MaosError, 409),
)
"""The first class that an error belongs to decides."""
TITLES: Mapping[int, str] = {
    400: "The request cannot be executed as given",
    401: "No valid credential",
    403: "Not permitted",
    404: "Not found",
    405: "Method not allowed",
    406: "Not acceptable",
    408: "The request took too long",
    409: "Conflict",
    412: "It has changed since",
    413: "The request is too large",
    415: "The body must be JSON",
    422: "The request is not valid",
    429: "Too many requests",
    431: "The headers are too large",
    500: "The server failed",
    503: "Unavailable",
    507: "No space left",
}


class RequestRefused(Exception):
    """A request that is answered with a problem; not an error of maos."""

    def __init__(self, status: int, what: str, hint: str = "", headers: Mapping[str, str] | None = None) -> None:
        super().__init__(what)
        self.status = status
        self.what = what
        self.hint = hint
        self.headers = dict(headers or {})


def of_error(error: errors.MaosError) -> Response:
    """The response to an error that a service raised."""
    status = next(code for kind, code in STATUSES if isinstance(error, kind))
    listed = error.problems[:PROBLEMS_SHOWN_MAX] if isinstance(error, BadPlan) else ()
    problems = [{"where": str(each.where), "what": each.what} for each in listed]
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
    return response(
        status, error.what, error.hint, kind=_kebab(type(error).__name__), problems=problems, headers=headers
    )


def of_refusal(refused: RequestRefused) -> Response:
    """The response to a request that was refused before any service saw it."""
    return response(refused.status, refused.what, refused.hint, headers=refused.headers)


def response(
    status: int,
    detail: str,
    hint: str = "",
    *,
    kind: str = "",
    problems: list[dict[str, str]] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """A response with a problem."""
    problem = ProblemDocument(
        type=f"urn:maos:{kind}" if kind else "about:blank",
        title=TITLES.get(status, "RequestRefused"),
        status=status,
        detail=detail,
        hint=hint,
        problems=list(problems or []),
    )
    return Response(msgspec.json.encode(problem), status, dict(headers or {}), MEDIA_TYPE)


def _kebab(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower()
