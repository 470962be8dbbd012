"""What can go wrong with a query, as types; each has a code that the API uses, and the HTTP status that goes with it."""

from __future__ import annotations

from typing import ClassVar

from penstock.errors import PenstockError


class QueryError(PenstockError):
    """A query that has no answer."""

    code: ClassVar[str] = "query_failed"
    status: ClassVar[int] = 400
    retry_after_s: float | None = None


class BadRequestError(QueryError, ValueError):
    """The query is not one."""

    code = "bad_request"


class UnknownJobError(QueryError, LookupError):
    code = "unknown_job"
    status = 404


class UnknownStepError(QueryError, LookupError):
    code = "unknown_step"
    status = 404


class UnknownStateError(QueryError, LookupError):
    code = "unknown_state"
    status = 404


class UnknownSourceError(QueryError, LookupError):
    """The job has no such source, or not one that is appended to."""

    code = "unknown_source"
    status = 404


class UnknownKeyError(QueryError, LookupError):
    """Nothing is kept for the key."""

    code = "unknown_key"
    status = 404


class UnknownRouteError(QueryError, LookupError):
    code = "unknown_route"
    status = 404


class NotQueryableError(QueryError, PermissionError):
    """The state was not declared `queryable=True`."""

    code = "not_queryable"
    status = 403


class NotHereError(QueryError, LookupError):
    """A replica was asked for a key whose group it does not have."""

    code = "not_here"
    status = 421


class EpochGoneError(QueryError, LookupError):
    """The epoch that was asked for is not kept, or the job went back behind it."""

    code = "epoch_gone"
    status = 410


class EpochNotReachedError(QueryError, TimeoutError):
    """The epoch that was asked for was not committed in time."""

    code = "epoch_not_reached"
    status = 409
    retry_after_s = 1.0


class RestoringError(QueryError, RuntimeError):
    """The job has committed nothing yet, or its state is not here yet."""

    code = "restoring"
    status = 503
    retry_after_s = 1.0


class TooMuchError(QueryError, ValueError):
    """The query asks for more than one answer may hold."""

    code = "too_much"
    status = 413


class UnauthorizedError(QueryError, PermissionError):
    """No token, or one that is not known."""

    code = "unauthorized"
    status = 401


class ForbiddenError(QueryError, PermissionError):
    """The token's role may not do this."""

    code = "forbidden"
    status = 403


class ConflictError(QueryError, RuntimeError):
    """The job cannot do what was asked."""

    code = "refused"
    status = 409


class TooManyRequestsError(QueryError, RuntimeError):
    code = "too_many_requests"
    status = 429
    retry_after_s = 1.0


def by_code() -> dict[str, type[QueryError]]:
    """The types, by the codes that answers have."""
    return {kind.code: kind for kind in QueryError.__subclasses__()}
