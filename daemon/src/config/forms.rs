//! Kinds of values with a form of their own, which several tables have.

use std::path::PathBuf;
use std::time::Duration;

use ceased_process::Isolation;
use toml::Spanned;

use super::check::{Checker, Key};
use super::kinds::{Choice, HOUR, Kind, MS};
use super::table::Table;
use super::units::{heartbeat as show_heartbeat, parse_duration, show_duration};
use super::values::Text;
use super::{OnDisconnect, OnEnd};

/// More often, and heartbeats are work for a client.
const HEARTBEAT_MIN: Duration = Duration::from_millis(100);

/// Isolation of commands from other processes.
pub(super) const ISOLATION: Choice<Isolation> =
    Choice(&[("none", Isolation::None), ("pid", Isolation::Pid)]);

/// The isolation that a key names.
pub(super) fn isolation(
    key: Key,
    written: Option<&Text>,
    default: Isolation,
    check: &mut Checker<'_>,
) -> Isolation {
    check.choice(key, written, default, ISOLATION.0)
}

/// The time between heartbeats; off for `None`.
pub(super) struct Heartbeat;

impl Kind<Option<Duration>> for Heartbeat {
    fn read(
        &self,
        table: &mut Table<'_, '_>,
        name: &'static str,
        default: Option<Duration>,
    ) -> Option<Duration> {
        let written: Option<Text> = table.take(name);
        heartbeat(table.key(name), written.as_ref(), default, table.check)
    }

    fn show(&self, value: &Option<Duration>) -> Option<String> {
        Some(show_heartbeat(*value))
    }
}

/// The time between heartbeats; off for `None`.
pub(super) fn heartbeat(
    key: Key,
    written: Option<&Text>,
    default: Option<Duration>,
    check: &mut Checker<'_>,
) -> Option<Duration> {
    let Some(written) = written else { return default };
    let text = written.get_ref();
    let span = if text == "off" { Ok(Duration::ZERO) } else { parse_duration(text) };
    match span {
        Ok(Duration::ZERO) => None,
        Ok(span) if (HEARTBEAT_MIN..=HOUR).contains(&span) => Some(span),
        Ok(_) | Err(_) => {
            let hint = "it takes 100ms to 1h, such as \"10s\", or \"off\"";
            check.bad_value(key, written.span().start, &format!("{text:?}"), hint);
            default
        }
    }
}

/// The effect of a disconnect on a plain call.
pub(super) struct Disconnect;

impl Kind<OnDisconnect> for Disconnect {
    fn read(
        &self,
        table: &mut Table<'_, '_>,
        name: &'static str,
        default: OnDisconnect,
    ) -> OnDisconnect {
        let written: Option<Text> = table.take(name);
        let effect = written.and_then(|text| on_disconnect(table.key(name), &text, table.check));
        effect.unwrap_or(default)
    }

    fn show(&self, value: &OnDisconnect) -> Option<String> {
        Some(match *value {
            OnDisconnect::Cancel => "cancel".into(),
            OnDisconnect::Detach => "detach".into(),
            OnDisconnect::Grace(time) => show_duration(time),
        })
    }
}

/// Effect of a disconnect on a plain call.
pub(super) fn on_disconnect(
    key: Key,
    written: &Text,
    check: &mut Checker<'_>,
) -> Option<OnDisconnect> {
    let text = written.get_ref();
    match text.as_str() {
        "cancel" => return Some(OnDisconnect::Cancel),
        "detach" => return Some(OnDisconnect::Detach),
        _ => {}
    }
    if let Ok(grace) = parse_duration(text)
        && (MS..=HOUR).contains(&grace)
    {
        return Some(OnDisconnect::Grace(grace));
    }
    let hint = "it takes \"cancel\", \"detach\", or how long the call continues, such as \"30s\", \
                up to 1h";
    check.bad_value(key, written.span().start, &format!("{text:?}"), hint);
    None
}

/// A command after the end of a call.
pub(super) struct EndCommand;

impl Kind<OnEnd> for EndCommand {
    fn read(&self, table: &mut Table<'_, '_>, name: &'static str, default: OnEnd) -> OnEnd {
        let written: Option<Spanned<Vec<Text>>> = table.take(name);
        on_end(table.key(name), written.as_ref(), table.check).unwrap_or(default)
    }

    fn show(&self, value: &OnEnd) -> Option<String> {
        (!value.is_empty()).then(|| value.elements().join(" "))
    }
}

/// A command after the end of a call; `None` if there is none, or it is wrong, which has been noted.
pub(super) fn on_end(
    key: Key,
    raw: Option<&Spanned<Vec<Text>>>,
    check: &mut Checker<'_>,
) -> Option<OnEnd> {
    let written = raw?.get_ref();
    let mut elements: Vec<String> = written.iter().map(|text| text.get_ref().clone()).collect();
    let program = elements.first_mut().filter(|program| program.contains('/'));
    let anchored = program.map(|program| {
        let (base, rest) = check.anchored(program).map_err(|why| (0, why.to_owned()))?;
        *program = base.join(rest).to_string_lossy().into_owned();
        Ok(())
    });
    let elements: Vec<&str> = elements.iter().map(String::as_str).collect();
    match anchored.transpose().and_then(|_| OnEnd::new(&elements)) {
        Ok(on_end) => Some(on_end),
        Err((at, why)) => {
            let element = written.get(at)?;
            check.bad_value(key, element.span().start, &format!("{:?}", element.get_ref()), why);
            None
        }
    }
}

/// A URI of one of these schemes.
pub(super) struct Uri(pub(super) &'static [&'static str]);

impl Kind<String> for Uri {
    fn read(&self, table: &mut Table<'_, '_>, name: &'static str, default: String) -> String {
        let written: Option<Text> = table.take(name);
        let uri = written.and_then(|text| uri(table.key(name), &text, self.0, table.check));
        uri.unwrap_or(default)
    }

    fn show(&self, value: &String) -> Option<String> {
        Some(format!("{value:?}"))
    }
}

/// A URI of one of these schemes.
pub(super) fn uri(
    key: Key,
    written: &Text,
    schemes: &[&str],
    check: &mut Checker<'_>,
) -> Option<String> {
    let text = written.get_ref();
    let known = schemes.iter().any(|scheme| text.len() > scheme.len() && text.starts_with(scheme));
    if known && !text.contains(char::is_whitespace) {
        return Some(text.clone());
    }
    let hint = format!("it takes a URI that begins with {}", schemes.join(" or "));
    check.bad_value(key, written.span().start, &format!("{text:?}"), hint);
    None
}

/// Paths, relative to the directory of the file.
pub(super) struct FilePaths;

impl Kind<Vec<PathBuf>> for FilePaths {
    fn read(
        &self,
        table: &mut Table<'_, '_>,
        name: &'static str,
        default: Vec<PathBuf>,
    ) -> Vec<PathBuf> {
        let Some(written) = table.take::<Vec<Text>>(name) else { return default };
        let key = table.key(name);
        written.iter().filter_map(|path| table.check.path(key, path)).collect()
    }

    fn show(&self, value: &Vec<PathBuf>) -> Option<String> {
        let paths: Vec<String> = value.iter().map(|path| path.display().to_string()).collect();
        (!paths.is_empty()).then(|| paths.join(", "))
    }
}
