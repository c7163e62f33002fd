//! `[metrics]` and `[alerts]`: the metrics endpoint, and thresholds of warnings.

use std::net::SocketAddr;
use std::time::Duration;

use ceased_transports::http::client::Url;
use ceased_transports::{Address, SocketMode};

use super::check::{Checker, Key};
use super::listen::SOCKET_PATH_BYTES_MAX;
use super::{Alerts, Listen, Metrics, Otlp, raw};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

const LISTEN: Key = Key { table: "[metrics]", name: "listen" };

pub(super) fn metrics(raw: &raw::Metrics, doors: &[Listen], check: &mut Checker<'_>) -> Metrics {
    let listen = raw.listen.as_ref().and_then(|written| {
        let listen = endpoint(written, check)?;
        if doors.iter().any(|door| is_at(door, &listen)) {
            let hint = "a [[listen]] already uses this address; change one of them";
            check.bad_value(
                LISTEN,
                written.span().start,
                &format!("{:?}", written.get_ref()),
                hint,
            );
        }
        Some(listen)
    });
    Metrics { listen }
}

/// Whether both cannot be bound at once.
fn is_at(door: &Listen, metrics: &Address) -> bool {
    match (door.socket(), metrics) {
        (Listen::Unix { path: one, .. }, Address::Unix { path: other, .. }) => one == other,
        (Listen::Tcp { address: one, .. }, Address::Tcp(other)) => one == other && one.port() != 0,
        (Listen::Unix { .. } | Listen::Tcp { .. } | Listen::Stdio | Listen::Http(_), _) => false,
    }
}

fn endpoint(written: &raw::Text, check: &mut Checker<'_>) -> Option<Address> {
    let (text, at) = (written.get_ref(), written.span().start);
    let hint = match (text.strip_prefix("unix:"), text.parse::<SocketAddr>()) {
        (Some(path), _) => {
            let path = check.path_in(LISTEN, written, path)?;
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
        (None, Err(_)) => "it takes \"unix:PATH\" or a loopback address such as \"127.0.0.1:9464\"",
    };
    check.bad_value(LISTEN, at, &format!("{text:?}"), hint);
    None
}

pub(super) fn alerts(raw: &raw::Alerts, check: &mut Checker<'_>) -> Alerts {
    let key = |name| Key { table: "[alerts]", name };
    let default = Alerts::default();
    let mut count = |name, raw: &Option<raw::Whole>, default: u32, most| {
        let default = usize::try_from(default).unwrap_or_default();
        let count = check.whole(key(name), raw.as_ref(), default, 0..=most);
        u32::try_from(count).unwrap_or(u32::MAX)
    };
    let high_water = count("high_water", &raw.high_water, default.high_water.into(), 100);
    let unknown_tasks =
        count("unknown_tasks", &raw.unknown_tasks, default.unknown_tasks, 1_000_000);
    let fast_polls = count("fast_polls", &raw.fast_polls, default.fast_polls, 1_000_000);
    let mut time = |name, raw: &Option<_>, default, range| {
        check.duration(key(name), raw.as_ref(), default, range)
    };
    let slow_stop =
        time("slow_stop", &raw.slow_stop, default.slow_stop, Duration::from_millis(1)..=HOUR);
    let window = time("window", &raw.window, default.window, SECOND..=HOUR);
    Alerts {
        high_water: u8::try_from(high_water).unwrap_or(100),
        slow_stop,
        window,
        unknown_tasks,
        fast_polls,
    }
}

/// The collector of spans; `None` if there is none, or it is wrong, which has been noted.
pub(super) fn otlp(raw: Option<&(usize, raw::Otlp)>, check: &mut Checker<'_>) -> Option<Otlp> {
    let (at, raw) = raw?;
    let key = |name| Key { table: "[otlp]", name };
    let Some(written) = &raw.endpoint else {
        let hint = "write endpoint = \"http://127.0.0.1:4318\"";
        check.missing(*at, "[otlp] has no `endpoint`", hint);
        return None;
    };
    let endpoint = written.get_ref();
    if let Err(why) = Url::parse(endpoint) {
        let (at, hint) = (written.span().start, format!("it {why}"));
        check.bad_value(key("endpoint"), at, &format!("{endpoint:?}"), hint);
    }
    let mut path = |name, raw: &Option<raw::Text>| {
        raw.as_ref().and_then(|written| check.path(key(name), written))
    };
    let headers_file = path("headers_file", &raw.headers_file);
    let ca_file = path("ca_file", &raw.ca_file);
    let default = Duration::from_secs(10);
    let range = Duration::from_millis(100)..=HOUR;
    Some(Otlp {
        endpoint: endpoint.clone(),
        headers_file,
        ca_file,
        service_name: raw.service_name.clone().unwrap_or_else(|| "ceased".to_owned()),
        timeout: check.duration(key("timeout"), raw.timeout.as_ref(), default, range),
        queue: check.whole(key("queue"), raw.queue.as_ref(), 2048, 1..=1_000_000),
    })
}
