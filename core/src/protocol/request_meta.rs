//! Metadata of a request in a revision without sessions: version, capabilities, log level (MOD-01).
//!
//! The metadata ends with its request: the next request on the same connection may come from
//! another client.

use alloc::format;
use alloc::string::String;

use crate::json::raw::{FoundMembers, Raw};
use crate::json::writer::Writer;
use crate::log_level::LogLevel;
use crate::protocol::capabilities::PeerCapabilities;
use crate::protocol::revision::{self, Dialect};
use crate::rpc::error::{ErrorObject, code};
use crate::rpc::params::{self, Params, ParamsMeta};

/// Metadata of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequestMeta {
    /// Revision of the request.
    pub(crate) dialect: &'static Dialect,
    /// Minimum level of log messages for the request; none if absent.
    pub(crate) log_level: Option<LogLevel>,
    /// Whether the client declared the tasks extension (EXT-01).
    pub(crate) tasks: bool,
    /// Input that the client can provide (MOD-07).
    pub(crate) peer: PeerCapabilities,
}

/// Revision and capabilities that apply to a request and its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestContext {
    /// Dialect of the session.
    Session(&'static Dialect),
    /// The request's own metadata.
    Request(RequestMeta),
}

impl RequestContext {
    /// Dialect of the request.
    pub(crate) const fn dialect(&self) -> &'static Dialect {
        match self {
            Self::Session(dialect) => dialect,
            Self::Request(claim) => claim.dialect,
        }
    }

    /// Input that an answer may ask for. Empty within a session, which sends requests instead.
    pub(crate) fn peer(&self) -> PeerCapabilities {
        match self {
            Self::Session(_) => PeerCapabilities::default(),
            Self::Request(claim) => claim.peer,
        }
    }
}

/// Reads the metadata of a request. `None` for a request of a session; an error for metadata that
/// cannot be served.
pub(crate) fn of(params: Option<&Params<'_>>) -> Option<Result<RequestMeta, ErrorObject>> {
    let meta = params::any_members(params).meta.as_ref()?;
    let claims = meta.version.is_some() || meta.capabilities.is_some();
    claims.then(|| read(meta))
}

fn read(meta: &ParamsMeta<'_>) -> Result<RequestMeta, ErrorObject> {
    let Some(version) = meta.version.and_then(Raw::string) else {
        return Err(missing("protocolVersion", "a string"));
    };
    let dialect = Dialect::claimed(&version).ok_or_else(|| unsupported(&version))?;
    let Some(capabilities) = meta.capabilities.filter(|raw| raw.is_object()) else {
        return Err(missing("clientCapabilities", "an object"));
    };
    let tasks = match member("", capabilities, "extensions")? {
        None => None,
        Some(extensions) => member(".extensions", extensions, "io.modelcontextprotocol/tasks")?,
    };
    let log_level = match meta.log_level {
        None => None,
        Some(level) => Some(read_level(level)?),
    };
    let tasks = tasks.is_some_and(Raw::is_object);
    Ok(RequestMeta {
        dialect,
        log_level,
        tasks,
        peer: PeerCapabilities::read(Some(capabilities), dialect),
    })
}

/// A member of the client's capabilities, or of the object at a path in them.
fn member<'a>(
    path: &str,
    object: Raw<'a>,
    name: &'static str,
) -> Result<Option<Raw<'a>>, ErrorObject> {
    let odd = match object.members([name]) {
        Some(FoundMembers { members: [member], twice: None }) => return Ok(member),
        Some(FoundMembers { twice: Some(_), .. }) => format!("may have one member {name:?}"),
        None => "must be an object".into(),
    };
    let message =
        format!("params._meta[\"io.modelcontextprotocol/clientCapabilities\"]{path} {odd}");
    Err(ErrorObject::invalid_params(message))
}

fn read_level(level: Raw<'_>) -> Result<LogLevel, ErrorObject> {
    let word = level.string();
    let known = |level: &LogLevel| Some(level.as_str()) == word.as_deref();
    LogLevel::ALL.into_iter().find(known).ok_or_else(|| {
        let message = "params._meta[\"io.modelcontextprotocol/logLevel\"] must be a log level";
        ErrorObject::invalid_params(message)
    })
}

/// Error for absent or incomplete metadata.
pub(crate) fn missing(key: &str, what: &str) -> ErrorObject {
    let message = format!("params._meta[\"io.modelcontextprotocol/{key}\"] must be {what}");
    ErrorObject::invalid_params(message)
}

fn unsupported(version: &str) -> ErrorObject {
    let mut data = alloc::vec::Vec::new();
    let mut json = Writer::new(&mut data);
    json.raw("{\"supported\":");
    write_supported(&mut json);
    json.raw(",").member("requested", version).raw("}");
    let data = String::from_utf8(data).expect("JSON text is UTF-8");
    let message = "a request cannot speak this protocol version: see data.supported";
    ErrorObject::new(code::UNSUPPORTED_VERSION, message).with_data(data)
}

/// Writes every served revision, newest first; the older ones need an `initialize`.
pub(crate) fn write_supported(json: &mut Writer<'_>) {
    for (position, dialect) in revision::ALL.iter().rev().enumerate() {
        json.raw(if position == 0 { "[" } else { "," }).string(dialect.revision);
    }
    json.raw("]");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::params::Members;

    fn claim(json: &str) -> Option<Result<RequestMeta, i64>> {
        let mut members = Members::default();
        members.read(json, 0, 64).expect("the params are JSON");
        let params = Params::seen(Raw::checked(json), &members);
        Some(of(Some(&params))?.map_err(|error| error.code))
    }

    const VERSION: &str = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28""#;
    const EMPTY: &str = r#""io.modelcontextprotocol/clientCapabilities":{}"#;

    /// MOD-01: metadata in every spelling, and requests of a session.
    #[test]
    fn request_metadata_is_read_in_every_spelling() {
        let plain = RequestMeta {
            dialect: &revision::MCP_2026_07_28,
            log_level: None,
            tasks: false,
            peer: PeerCapabilities::default(),
        };
        let whole = format!("{{\"_meta\":{{{VERSION},{EMPTY}}}}}");
        assert_eq!(claim(&whole), Some(Ok(plain)));
        assert_eq!(claim(&whole.replace('/', "\\/")), Some(Ok(plain)));
        let level = r#""io.modelcontextprotocol/logLevel":"warning""#;
        assert_eq!(
            claim(&format!("{{\"_meta\":{{{VERSION},{EMPTY},{level}}}}}")),
            Some(Ok(RequestMeta { log_level: Some(LogLevel::Warning), ..plain }))
        );
        for (declared, tasks) in [
            (r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#, true),
            (r#"{"extensions":{"io.modelcontextprotocol/tasks":null}}"#, false),
            (r#"{"extensions":{}}"#, false),
            (r#"{"tasks":{"requests":{"tools":{"call":{}}}}}"#, false),
        ] {
            let key = "\"io.modelcontextprotocol/clientCapabilities\"";
            let params = format!("{{\"_meta\":{{{VERSION},{key}:{declared}}}}}");
            assert_eq!(claim(&params), Some(Ok(RequestMeta { tasks, ..plain })), "{declared}");
        }
        for session in [
            "{}",
            "[]",
            r#"{"_meta":{}}"#,
            r#"{"_meta":7}"#,
            r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":null}}"#,
            r#"{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"x"}}}"#,
            r#"{"arguments":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#,
        ] {
            assert_eq!(claim(session), None, "{session}");
        }
    }

    /// MOD-01: incomplete metadata, and revisions that are not served.
    #[test]
    fn incomplete_request_metadata_is_an_error() {
        let meta = |members: &str| claim(&format!("{{\"_meta\":{{{members}}}}}"));
        assert_eq!(meta(VERSION), Some(Err(code::INVALID_PARAMS)));
        assert_eq!(meta(EMPTY), Some(Err(code::INVALID_PARAMS)));
        let odd = EMPTY.replace("{}", "[]");
        assert_eq!(meta(&format!("{VERSION},{odd}")), Some(Err(code::INVALID_PARAMS)));
        let odd = VERSION.replace("\"2026-07-28\"", "2026");
        assert_eq!(meta(&format!("{odd},{EMPTY}")), Some(Err(code::INVALID_PARAMS)));
        let level = r#""io.modelcontextprotocol/logLevel":"loud""#;
        let members = format!("{VERSION},{EMPTY},{level}");
        assert_eq!(meta(&members), Some(Err(code::INVALID_PARAMS)));
        for other in ["2025-11-25", "2099-01-01", ""] {
            let odd = VERSION.replace("2026-07-28", other);
            assert_eq!(meta(&odd), Some(Err(code::UNSUPPORTED_VERSION)), "{other}");
        }
    }
}
