//! Pages for the system around the daemon: health on every listener for HTTP, and the numbers for
//! Prometheus on the listener of `[metrics]`. They need no authentication and tell no details.

use std::sync::atomic::{AtomicBool, Ordering};

use ceased_transports::http::{Head, Method, Response, Status};

/// Path of the numbers.
pub(crate) const METRICS: &str = "/metrics";
/// Media type of the numbers.
const NUMBERS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The pages of a listener for HTTP beside those of health.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Serves {
    /// The endpoint of MCP, and the live view.
    Endpoint,
    /// The numbers for Prometheus.
    Numbers,
}

/// Whether the daemon takes calls, as a load balancer asks.
#[derive(Debug, Default)]
pub(crate) struct Health {
    is_draining: AtomicBool,
    is_without_store: AtomicBool,
}

impl Health {
    /// The daemon takes no further calls, and ends those that run.
    pub(crate) fn note_draining(&self) {
        self.is_draining.store(true, Ordering::Relaxed);
    }

    /// Notes whether the store can be used.
    pub(crate) fn note_store(&self, is_usable: bool) {
        self.is_without_store.store(!is_usable, Ordering::Relaxed);
    }

    /// The page of this path, if it is one of health: `/healthz` while the loop turns and does not
    /// drain, `/readyz` while the store can be used as well.
    fn page(&self, path: &str) -> Option<Response> {
        let is_draining = self.is_draining.load(Ordering::Relaxed);
        let is_without_store = self.is_without_store.load(Ordering::Relaxed);
        let fault = match path {
            "/healthz" | "/readyz" if is_draining => Some("draining"),
            "/readyz" if is_without_store => Some("the store cannot be used"),
            "/healthz" | "/readyz" => None,
            _ => return None,
        };
        let response = match fault {
            None => Response::text(Status::Ok, "ok"),
            Some(fault) => Response::text(Status::Unavailable, fault).header("retry-after", "1"),
        };
        Some(response.header("cache-control", "no-store"))
    }

    /// The response to a request for a page of health, if it is one.
    pub(crate) fn answer(&self, head: &Head) -> Option<Response> {
        let page = self.page(head.path())?;
        Some(check_method(head).err().unwrap_or(page))
    }
}

/// Checks a request to the listener of the numbers.
///
/// # Errors
/// The response to any other request than one for the numbers.
pub(crate) fn check_numbers(head: &Head) -> Result<(), Response> {
    if head.path() != METRICS {
        let text = "unknown path; use /metrics, /healthz or /readyz";
        return Err(Response::text(Status::NotFound, text));
    }
    check_method(head)
}

fn check_method(head: &Head) -> Result<(), Response> {
    match head.method {
        Method::Get | Method::Head => Ok(()),
        Method::Post | Method::Delete | Method::Options | Method::Other => {
            let response = Response::text(Status::MethodNotAllowed, "GET or HEAD");
            Err(response.header("allow", "GET, HEAD"))
        }
    }
}

/// The response to a request for a page that is for everyone, also for pages of other origins.
pub(crate) fn public(page: Response, head: &Head) -> Response {
    match head.method {
        Method::Options => Response { status: Status::NoContent, body: Vec::new(), ..page },
        Method::Get | Method::Head | Method::Post | Method::Delete | Method::Other => {
            check_method(head).err().unwrap_or(page)
        }
    }
}

/// The response with the numbers.
pub(crate) fn numbers(page: String) -> Response {
    Response::new(Status::Ok)
        .header("content-type", NUMBERS)
        .header("cache-control", "no-store")
        .body(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_has_two_pages() {
        let health = Health::default();
        let status = |path| health.page(path).map(|response| response.status);
        let both = || (status("/healthz"), status("/readyz"));
        assert_eq!(both(), (Some(Status::Ok), Some(Status::Ok)));
        health.note_store(false);
        assert_eq!(both(), (Some(Status::Ok), Some(Status::Unavailable)));
        health.note_store(true);
        assert_eq!(both(), (Some(Status::Ok), Some(Status::Ok)));
        health.note_draining();
        assert_eq!(both(), (Some(Status::Unavailable), Some(Status::Unavailable)));
        assert_eq!(status("/health"), None);
    }
}
