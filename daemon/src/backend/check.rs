//! Verdicts of `ceased check` and `ceased store check`, as text and as JSON.

use std::io::{self, Write};
use std::path::Path;

use serde_json::{Value, json};

use super::fleet::look;
use super::seen::ImaginedCaller;
use crate::cli::FleetView;
use crate::config::{Config, ConfigError, Durability, Problem};
use crate::daemon::preflight::{Preflight, preflight};
use crate::store::inspect::Inspected;

/// The verdict on a configuration.
pub(super) struct Checked {
    /// The configuration, with the path of its file, if there is one.
    config: Option<(Config, Option<String>)>,
    /// The caller whose view is shown as well.
    caller: Option<ImaginedCaller>,
    warnings: Vec<String>,
    /// The database of `[fleet]`, once it was tried.
    fleet: Option<FleetView>,
    /// Reasons for which a daemon would not start; empty if none is known.
    problems: Vec<Defect>,
}

/// A reason for which a daemon would not start.
enum Defect {
    /// A problem of the file.
    File(Problem),
    /// A condition outside of the file.
    Outside(String),
}

impl Defect {
    fn json(&self) -> Value {
        match self {
            Self::File(Problem { file, line, what, hint }) => {
                json!({"file": file.to_string_lossy(), "line": line, "what": what, "hint": hint})
            }
            Self::Outside(what) => json!({"file": null, "line": 0, "what": what, "hint": null}),
        }
    }
}

/// A configuration to check.
pub(super) struct ToCheck {
    pub(super) config: Config,
    /// Path of its file, if there is one.
    pub(super) path: Option<String>,
    /// Reason for which the project's file is not used, if it exists.
    pub(super) note: Option<String>,
}

/// Checks a configuration and the files that it names.
pub(super) fn configuration(
    found: Result<ToCheck, ConfigError>,
    caller: Option<ImaginedCaller>,
) -> Checked {
    match found {
        Ok(ToCheck { config, path, note }) => {
            let Preflight { refusals, warnings } = preflight(&config);
            let warnings = note.into_iter().chain(warnings).collect();
            let problems = refusals.iter().map(|why| Defect::Outside(why.to_string())).collect();
            Checked { config: Some((config, path)), caller, warnings, fleet: None, problems }
        }
        Err(error) => {
            let problems = error.problems().iter().cloned().map(Defect::File).collect();
            Checked { config: None, caller, warnings: Vec::new(), fleet: None, problems }
        }
    }
}

impl Checked {
    /// Whether a daemon starts with it, as far as known.
    pub(super) const fn is_valid(&self) -> bool {
        self.problems.is_empty()
    }

    /// Tries the database of `[fleet]`.
    pub(super) fn connect(&mut self) {
        let Some((config, _)) = &self.config else { return };
        let Some(fleet) = &config.fleet else {
            return self.warnings.push("there is no [fleet] to connect to".to_owned());
        };
        match look(config, None, false) {
            Ok(view) => {
                let flaws = view.flaws.iter().map(|flaw| format!("the database has {flaw}"));
                if fleet.require == Durability::Strict {
                    self.problems.extend(flaws.map(Defect::Outside));
                } else {
                    self.warnings.extend(flaws);
                }
                self.fleet = Some(view);
            }
            Err(why) => self.problems.push(Defect::Outside(why)),
        }
    }

    /// Writes the verdict to `out`, warnings and problems to `err`. `place` is the path where a
    /// configuration belongs.
    pub(super) fn write_text(
        &self,
        place: &str,
        out: &mut dyn Write,
        err: &mut dyn Write,
    ) -> io::Result<()> {
        let mut complain = |text: &str| {
            // A closed stderr does not change the verdict.
            for line in text.lines() {
                let _ = writeln!(err, "ceased: {line}");
            }
        };
        self.warnings.iter().for_each(|warning| complain(&format!("warning: {warning}")));
        let of_file = self.problems.iter().filter_map(|problem| match problem {
            Defect::File(problem) => Some(problem.clone()),
            Defect::Outside(_) => None,
        });
        if let Some(error) = ConfigError::of(of_file.collect()) {
            complain(&error.to_string());
        }
        for problem in &self.problems {
            if let Defect::Outside(what) = problem {
                complain(what);
            }
        }
        match &self.config {
            Some((config, path)) if self.is_valid() => {
                let name = path.clone().unwrap_or_else(|| {
                    format!("no configuration file: the defaults (create one at {place})")
                });
                writeln!(out, "{name}: ok\n{}", config.describe().trim_end())?;
                if let Some(view) = &self.fleet {
                    let nodes = view.nodes.len();
                    writeln!(out, "fleet: {}, nodes: {nodes}", view.database_in_words())?;
                }
                self.caller.iter().try_for_each(|caller| caller.write_text(config, out))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Writes everything to `out`.
    pub(super) fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        let problems: Vec<Value> = self.problems.iter().map(Defect::json).collect();
        let config = self.config.as_ref().map(|(config, _)| config);
        let of = |list: fn(&Config) -> Vec<Value>| config.map(list).unwrap_or_default();
        let path = self.config.as_ref().and_then(|(_, path)| path.as_deref());
        let mut document = json!({
            "valid": self.is_valid(), "file": path, "problems": problems, "warnings": self.warnings,
            "settings": of(settings), "tools": of(tools), "servers": of(servers),
            "agents": of(agents),
        });
        if let Some(view) = &self.fleet {
            document["fleet"] = view.json();
        }
        if let (Some(caller), Some(config)) = (&self.caller, config) {
            document["sees"] = caller.json(config);
        }
        writeln!(out, "{document}")
    }
}

/// The settings but for tools; a value of several lines is one text.
fn settings(config: &Config) -> Vec<Value> {
    let mut settings: Vec<(String, String)> = Vec::new();
    for (name, value) in config.settings_in_words() {
        match settings.last_mut() {
            Some((_, before)) if name.is_empty() => {
                before.push_str(", ");
                before.push_str(&value);
            }
            Some(_) | None => settings.push((name, value)),
        }
    }
    settings.into_iter().map(|(name, value)| json!({"name": name, "value": value})).collect()
}

fn tools(config: &Config) -> Vec<Value> {
    let tools = config.tools.iter().map(|tool| {
        let settings = tool.settings_in_words(&config.daemon);
        json!({"name": tool.name, "runs": tool.runs(), "settings": settings})
    });
    tools.collect()
}

fn servers(config: &Config) -> Vec<Value> {
    let servers = config.servers.iter().map(|server| {
        let settings = server.settings_in_words(config);
        json!({"name": server.name, "runs": server.runs(), "settings": settings})
    });
    servers.collect()
}

fn agents(config: &Config) -> Vec<Value> {
    let agents = config.agents.iter().map(|agent| {
        let settings = agent.settings_in_words();
        json!({"name": agent.name, "runs": agent.runs(), "settings": settings})
    });
    agents.collect()
}

/// Writes the verdict on a store to `out`, its problems to `err`.
pub(super) fn write_store_text(
    inspected: &Inspected,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<()> {
    if inspected.problems.is_empty() {
        return writeln!(out, "{}", inspected.verdict);
    }
    inspected.problems.iter().try_for_each(|line| writeln!(err, "ceased: {line}"))
}

/// Writes the verdict on the store of a state directory to `out`.
pub(super) fn write_store_json(
    state_dir: &Path,
    inspected: &Inspected,
    out: &mut dyn Write,
) -> io::Result<()> {
    let document = json!({
        "intact": inspected.problems.is_empty(),
        "stateDir": state_dir.to_string_lossy(),
        "content": inspected.content,
        "problems": inspected.problems,
    });
    writeln!(out, "{document}")
}
