//! Responses that carry JSON-RPC messages.

use ceased_core::rpc::error::{ErrorObject, code};
use ceased_transports::http::{Response, Status};

use super::routing::HEADER_MISMATCH;
use crate::event_loop::state::auth::error_answer;

/// Status of the response to a request of 2026-07-28 that failed with this code (HTTP-09).
pub(crate) const fn status_of(error: i64, has_metadata: bool) -> Status {
    match error {
        code::INVALID_PARAMS if !has_metadata => Status::BadRequest,
        HEADER_MISMATCH
        | code::MISSING_CAPABILITY
        | code::UNSUPPORTED_VERSION
        | code::PARSE_ERROR
        | code::INVALID_REQUEST => Status::BadRequest,
        code::METHOD_NOT_FOUND => Status::NotFound,
        _ => Status::Ok,
    }
}

/// A response whose body is a JSON-RPC error for the request with this id token.
pub(crate) fn error(status: Status, id: &str, error: &ErrorObject) -> Response {
    Response::json(status, error_answer(id, error))
}

/// A response whose body is a JSON-RPC error without a request.
pub(crate) fn refusal(status: Status, message: impl Into<String>) -> Response {
    let error = ErrorObject::new(code::INVALID_REQUEST, message.into());
    Response::json(status, error_answer("null", &error))
}

/// Head of a stream of events.
pub(crate) fn stream_head() -> Response {
    Response::new(Status::Ok)
        .header("content-type", ceased_transports::http::sse::CONTENT_TYPE)
        .header("cache-control", "no-cache")
        // HTTP-09: a proxy that collects events delays them.
        .header("x-accel-buffering", "no")
}
