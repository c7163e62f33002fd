//! Kinds of values with a form of their own, which several tables have.

use std::path::PathBuf;
use std::time::Duration;

use ceased_process::Isolation;
use toml::Spanned;

use super::check::{Checker, Key};
use super::kinds::{Choice, HOUR, Kind, MS, YEAR};
use super::units::{heartbeat, parse_duration, show_duration};
use super::values::Text;
use super::{OnDisconnect, OnEnd};

/// More often, and heartbeats are work for a client.
const HEARTBEAT_MIN: Duration = Duration::from_millis(100);

/// Isolation of commands from other processes.
pub(super) const ISOLATION: Choice<'_, Isolation> =
    Choice(&[("none", Isolation::None), ("pid", Isolation::Pid)]);

/// The time between heartbeats; off for `None`.
pub(super) struct Heartbeat;

impl Kind<Option<Duration>> for Heartbeat {
    type Written = String;

    fn parse(&self, key: Key, written: &Text, check: &mut Checker<'_>) -> Option<Option<Duration>> {
        let text = written.get_ref();
        let span = if text == "off" { Ok(Duration::ZERO) } else { parse_duration(text) };
        match span {
            Ok(Duration::ZERO) => Some(None),
            Ok(span) if (HEARTBEAT_MIN..=HOUR).contains(&span) => Some(Some(span)),
            Ok(_) | Err(_) => {
                let hint = "it takes 100ms to 1h, such as \"10s\", or \"off\"";
                check.bad_value(key, written.span().start, &format!("{text:?}"), hint);
                None
            }
        }
    }

    fn show(&self, value: &Option<Duration>) -> Option<String> {
        Some(heartbeat(*value))
    }
}

/// A duration that may be `"off"`, with an example of one.
pub(super) struct TimeOrOff(pub(super) &'static str);

impl Kind<Option<Duration>> for TimeOrOff {
    type Written = String;

    fn parse(&self, key: Key, written: &Text, check: &mut Checker<'_>) -> Option<Option<Duration>> {
        let text = written.get_ref();
        match parse_duration(text) {
            _ if text == "off" => Some(None),
            Ok(span) if (MS..=YEAR).contains(&span) => Some(Some(span)),
            Ok(_) | Err(_) => {
                let hint = format!("it takes 1ms to 365d, such as {:?}, or \"off\"", self.0);
                check.bad_value(key, written.span().start, &format!("{text:?}"), hint);
                None
            }
        }
    }

    fn show(&self, value: &Option<Duration>) -> Option<String> {
        Some(heartbeat(*value))
    }
}

/// The effect of a disconnect on a plain call.
pub(super) struct Disconnect;

impl Kind<OnDisconnect> for Disconnect {
    type Written = String;

    fn parse(&self, key: Key, written: &Text, check: &mut Checker<'_>) -> Option<OnDisconnect> {
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

    fn show(&self, value: &OnDisconnect) -> Option<String> {
        Some(match *value {
            OnDisconnect::Cancel => "cancel".into(),
            OnDisconnect::Detach => "detach".into(),
            OnDisconnect::Grace(time) => show_duration(time),
        })
    }
}

/// A command after the end of a call.
pub(super) struct EndCommand;

impl Kind<OnEnd> for EndCommand {
    type Written = Vec<Text>;

    fn parse(
        &self,
        key: Key,
        written: &Spanned<Vec<Text>>,
        check: &mut Checker<'_>,
    ) -> Option<OnEnd> {
        let written = written.get_ref();
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
                let (at, text) = (element.span().start, format!("{:?}", element.get_ref()));
                check.bad_value(key, at, &text, why);
                None
            }
        }
    }

    fn show(&self, value: &OnEnd) -> Option<String> {
        (!value.is_empty()).then(|| value.elements().join(" "))
    }
}

/// A URI of one of these schemes.
pub(super) struct Uri(pub(super) &'static [&'static str]);

impl Kind<String> for Uri {
    type Written = String;

    fn parse(&self, key: Key, written: &Text, check: &mut Checker<'_>) -> Option<String> {
        let text = written.get_ref();
        let begins = |scheme: &&str| text.len() > scheme.len() && text.starts_with(scheme);
        if self.0.iter().any(begins) && !text.contains(char::is_whitespace) {
            return Some(text.clone());
        }
        let hint = format!("it takes a URI that begins with {}", self.0.join(" or "));
        check.bad_value(key, written.span().start, &format!("{text:?}"), hint);
        None
    }

    fn show(&self, value: &String) -> Option<String> {
        Some(format!("{value:?}"))
    }
}

/// Paths, relative to the directory of the file.
pub(super) struct FilePaths;

impl Kind<Vec<PathBuf>> for FilePaths {
    type Written = Vec<Text>;

    fn parse(
        &self,
        key: Key,
        written: &Spanned<Vec<Text>>,
        check: &mut Checker<'_>,
    ) -> Option<Vec<PathBuf>> {
        Some(written.get_ref().iter().filter_map(|path| check.path(key, path)).collect())
    }

    fn show(&self, value: &Vec<PathBuf>) -> Option<String> {
        let paths: Vec<String> = value.iter().map(|path| path.display().to_string()).collect();
        (!paths.is_empty()).then(|| paths.join(", "))
    }
}
