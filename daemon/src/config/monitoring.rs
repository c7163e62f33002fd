//! `[metrics]`, `[alerts]` and `[otlp]`: the metrics endpoint, thresholds of warnings, the collector.

#[cfg(feature = "config")]
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ceased_transports::Address;
#[cfg(feature = "config")]
use ceased_transports::{SocketMode, http::client::Url};

use super::keys::{Declared, keys};
#[cfg(feature = "config")]
use super::{
    Listen,
    check::{Checker, Key},
    discover::Environment,
    kinds::{Count, FilePath, HOUR, Kind, MS, Perhaps, Time, Words, row_of},
    listen::SOCKET_PATH_BYTES_MAX,
    table::Table,
    units::show_duration,
    values::Text,
};

keys! {
    /// `[metrics]`
    Metrics ["metrics"] {
        /// Address of the metrics endpoint of `ceased serve`, a Unix socket or a loopback address;
        /// disabled if `None`.
        listen: Option<Address> = None, Perhaps(Endpoint), at start;
    }
}

keys! {
    /// `[alerts]`: thresholds of warnings.
    Alerts ["alerts"] {
        /// Percent of a limit at which its gauge is warned about; 0 disables the warnings.
        high_water: u8 = 80, Count(0..=100),
            row |it| {
                let slow = show_duration(it.slow_stop);
                Some(("alerts", format!("{} % of a limit, stops slower than {slow}", it.high_water)))
            };
        /// Time after which stopping a job counts as slow.
        slow_stop: Duration = Duration::from_secs(10), Time(MS..=HOUR), row |_| None;
        /// Interval over which the next two are counted.
        window: Duration = Duration::from_secs(60), Time(1000 * MS..=HOUR), row |_| None;
        /// Requests of an identity for unknown tasks; 0 disables the warnings.
        unknown_tasks: u32 = 20, Count(0..=1_000_000),
            row |it| {
                let (unknown, fast) = (it.unknown_tasks, it.fast_polls);
                let window = show_duration(it.window);
                Some(("", format!("{unknown} unknown tasks, {fast} fast polls within {window}")))
            };
        /// Requests of an identity for a task before its `poll_interval` has passed; 0 disables the
        /// warnings.
        fast_polls: u32 = 120, Count(0..=1_000_000), row |_| None;
    }
}

keys! {
    /// `[otlp]`: the collector that gets a span of each call (OBS-01).
    Otlp ["otlp"] {
        /// Its URL; spans go to `/v1/traces` below it.
        endpoint: String = String::new(), Collector,
            row |it| Some(("otlp", format!("{}, as {:?}", it.endpoint, it.service_name)));
        /// File of headers of its requests, one `Name: value` a line; not read here.
        headers_file: Option<PathBuf> = None, Perhaps(FilePath), row |_| None;
        /// File of the authorities that its certificate is checked with; those of the system if `None`.
        ca_file: Option<PathBuf> = None, Perhaps(FilePath), row |_| None;
        /// Name of this service in traces.
        service_name: String = "ceased".to_owned(), Words, row |_| None;
        /// Time limit of a request.
        timeout: Duration = Duration::from_secs(10), Time(100 * MS..=HOUR), row |_| None;
        /// Maximum number of spans that wait for delivery.
        queue: usize = 2048, Count(1..=1_000_000), row |_| None;
    }
}

#[cfg(feature = "config")]
impl Metrics {
    /// Takes all keys, and checks that no listener has the address.
    pub(super) fn read_beside(doors: &[Listen], table: &mut Table<'_, '_>) -> Self {
        let metrics = Self::read(table);
        if let Some(listen) = &metrics.listen
            && let Some(written) = table.again::<Text>("listen")
            && doors.iter().any(|door| is_at(door, listen))
        {
            let hint = "a [[listen]] already uses this address; change one of them";
            let (key, text) = (table.key("listen"), format!("{:?}", written.get_ref()));
            table.check.bad_value(key, written.span().start, &text, hint);
        }
        metrics
    }
}

#[cfg(feature = "config")]
impl Otlp {
    /// Takes all keys; `None` without the address, which is reported.
    pub(super) fn read_whole(table: &mut Table<'_, '_>) -> Option<Self> {
        if table.check.lacks_tls(table.at, "[otlp]") {
            return None;
        }
        let otlp = Self::read(table);
        if table.has("endpoint") {
            return Some(otlp);
        }
        let hint = "write endpoint = \"http://127.0.0.1:4318\"";
        table.check.missing(table.at, "[otlp] has no `endpoint`", hint);
        None
    }
}

/// The address of the metrics endpoint.
#[cfg(feature = "config")]
struct Endpoint;

#[cfg(feature = "config")]
impl Kind<Address> for Endpoint {
    type Written = String;

    fn parse(&self, key: Key, written: &Text, check: &mut Checker<'_>) -> Option<Address> {
        let (text, at) = (written.get_ref(), written.span().start);
        let hint = match (text.strip_prefix("unix:"), text.parse::<SocketAddr>()) {
            (Some(path), _) => {
                let path = check.path_in(key, written, path)?;
                if path.as_os_str().len() <= SOCKET_PATH_BYTES_MAX {
                    return Some(Address::Unix { path, mode: SocketMode::OWNER });
                }
                "a socket's path takes at most 107 bytes; set a shorter one"
            }
            (None, Ok(address)) if address.ip().to_canonical().is_loopback() => {
                return Some(Address::Tcp(address));
            }
            (None, Ok(_)) => {
                "it would be readable from the network; use a loopback address, 127.0.0.1 or [::1]"
            }
            (None, Err(_)) => {
                "it takes \"unix:PATH\" or a loopback address such as \"127.0.0.1:9464\""
            }
        };
        check.bad_value(key, at, &format!("{text:?}"), hint);
        None
    }

    fn show(&self, value: &Address) -> Option<String> {
        Some(value.to_string())
    }
}

/// The URL of a collector.
#[cfg(feature = "config")]
struct Collector;

#[cfg(feature = "config")]
impl Kind<String> for Collector {
    type Written = String;

    fn parse(&self, key: Key, written: &Text, check: &mut Checker<'_>) -> Option<String> {
        if let Err(why) = Url::parse(written.get_ref()) {
            let text = format!("{:?}", written.get_ref());
            check.bad_value(key, written.span().start, &text, format!("it {why}"));
        }
        Some(written.get_ref().clone())
    }

    fn show(&self, value: &String) -> Option<String> {
        Some(value.clone())
    }
}

/// Whether both cannot be bound at once.
#[cfg(feature = "config")]
fn is_at(door: &Listen, metrics: &Address) -> bool {
    match (door.socket(), metrics) {
        (Listen::Unix { path: one, .. }, Address::Unix { path: other, .. }) => one == other,
        (Listen::Tcp { address: one, .. }, Address::Tcp(other)) => one == other && one.port() != 0,
        (Listen::Unix { .. } | Listen::Tcp { .. } | Listen::Stdio | Listen::Http(_), _) => false,
    }
}
