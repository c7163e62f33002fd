//! Values of arguments that several commands take.

use std::time::Duration;

use crate::config::units::parse_size;

/// A duration of more than zero.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    match duration_or_none(text)? {
        Duration::ZERO => Err("must be more than zero".to_owned()),
        duration => Ok(duration),
    }
}

/// Longest accepted duration, within the range of the clock.
const DURATION_MAX: Duration = Duration::from_secs(100 * 31_557_600);

/// Most bytes of an incomplete message of one client.
const MESSAGE_BYTES_MAX: u64 = 128 * 1024 * 1024;

/// Parses the length of a message.
pub(super) fn message_bytes(text: &str) -> Result<usize, String> {
    let bytes = parse_size(text)?;
    let fits = (1024..=MESSAGE_BYTES_MAX).contains(&bytes);
    usize::try_from(bytes).ok().filter(|_| fits).ok_or("must be from 1KiB to 128MiB".into())
}

/// As [`duration`], but zero is allowed.
pub(super) fn duration_or_none(text: &str) -> Result<Duration, String> {
    let duration = match seconds(text) {
        Some(duration) => duration,
        None => humantime::parse_duration(text)
            .map_err(|why| format!("{why}; write it like \"90s\" or \"1h 30m\""))?,
    };
    if duration > DURATION_MAX {
        let most = humantime::format_duration(DURATION_MAX);
        return Err(format!("must be at most {most}"));
    }
    Ok(duration)
}

/// A number without a unit: seconds, as for `timeout` and `sleep`.
fn seconds(text: &str) -> Option<Duration> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let seconds: f64 = text.parse().ok().filter(|_| is_number)?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// Checked here because an invalid address must not look like a missing daemon, for which scripts
/// wait.
pub(super) fn host_and_port(text: &str) -> Result<String, String> {
    match text.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {
            Ok(text.to_owned())
        }
        Some(_) | None => Err("write it like \"localhost:7411\" or \"[::1]:7411\"".to_owned()),
    }
}
