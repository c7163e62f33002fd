//! Preflight checks: external conditions that decide whether a daemon starts with a configuration.

use crate::access::Access;
use crate::config::{self, Agent, CommandTool, Config, Keeping, Listen, Run, Server};
use crate::daemon::configured::{bounded, isolated, unenforced};
use crate::observability::audit;
use crate::start_error::StartError;
use crate::store::directory;
use ceased_core::upstream::server::Share;
use ceased_process::daemon_support::{predict_unenforced, unrunnable};
use ceased_process::guard::Program;
use rustix::process::geteuid;

/// Predicted result of a start, here and now and as this user.
pub(crate) struct Preflight {
    /// Reasons for which the start would fail; empty if none is known.
    pub(crate) refusals: Vec<StartError>,
    /// Defects that do not prevent the start, one line each.
    pub(crate) warnings: Vec<String>,
}

/// Checks the files a configuration names. Creates, changes and runs nothing, except a guard if
/// tools are to have a pid namespace.
pub(crate) fn preflight(config: &Config) -> Preflight {
    let audit = config.log.audit.as_deref().map_or(Ok(()), audit::probe);
    let tokens = config.listen.iter().filter_map(|listen| Access::of(listen).err());
    let state = match config.daemon.store {
        Keeping::Memory => None,
        Keeping::Auto | Keeping::Disk => directory::probe(&config.daemon.state_dir).err(),
    };
    let refusals = audit.err().into_iter().chain(tokens.map(StartError::Tokens));
    let refusals = refusals.chain(state.map(StartError::StateDir)).collect();
    let mut warnings = Vec::new();
    for tool in &config.tools {
        let Run::Command(command) = &tool.run else { continue };
        let (name, program) = (&tool.name, &command.template.program);
        if let Some(why) = own_path(command).and_then(|path| unrunnable(program, path)) {
            let program = program.display();
            warnings.push(format!("the tool {name:?} runs {program:?}, {why}: calls of it fail"));
        }
        // TSK-39: the rights of root are not for its callers.
        if geteuid().is_root() && command.run_as.is_none() && others_connect(config) {
            warnings.push(format!(
                "the tool {name:?} has no `run_as`: a daemon that runs as root runs it for root alone, \
                 and refuses it to other users; write run_as = \"peer\", or the name of a user"
            ));
        }
        if let Some(why) = config::option_warning(&command.template, &tool.arguments) {
            warnings.push(format!("the tool {name:?}: {why}"));
        }
    }
    warnings.extend(config.servers.iter().flat_map(server_warnings));
    warnings.extend(config.agents.iter().filter_map(agent_warning));
    warnings.extend(isolation(config));
    let bounded = bounded(config);
    let missing = predict_unenforced(&bounded.keys().copied().collect());
    warnings.extend(unenforced(&bounded, &missing));
    Preflight { refusals, warnings }
}

/// Whether other users than that of the daemon can connect.
fn others_connect(config: &Config) -> bool {
    config.listen.iter().any(|listen| match listen {
        Listen::Unix { mode, .. } => mode & 0o066 != 0,
        Listen::Tcp { .. } | Listen::Http(_) => true,
        Listen::Stdio => false,
    })
}

/// Defects of a server: a program that is not there, and a user that cannot be chosen.
fn server_warnings(server: &Server) -> Vec<String> {
    let mut warnings = Vec::new();
    let name = &server.name;
    if let (Some(program), Ok(variables)) = (server.command.first(), server.launch.variables()) {
        let path = variables.into_iter().rev().find(|(name, _)| name == "PATH");
        if let Some(why) = unrunnable(program, path.map(|(_, path)| path)) {
            let program = program.display();
            warnings.push(format!("the server {name:?} runs {program:?}, {why}: it cannot start"));
        }
    }
    // TSK-39: no caller is known when such an instance starts.
    if geteuid().is_root()
        && server.remote.is_none()
        && server.share == Share::Call
        && server.launch.run_as.is_none()
    {
        warnings.push(format!(
            "the server {name:?} has share = \"call\" and no `run_as`: a daemon that runs as root does \
             not start it; name its user"
        ));
    }
    warnings
}

/// An agent whose program is not there.
fn agent_warning(agent: &Agent) -> Option<String> {
    let (name, program) = (&agent.name, agent.command.first()?);
    let path = agent.launch.variables().ok()?.into_iter().rev().find(|(name, _)| name == "PATH");
    let why = unrunnable(program, path.map(|(_, path)| path))?;
    let program = program.display();
    Some(format!("the agent {name:?} runs {program:?}, {why}: it cannot start"))
}

/// A warning if tools need a pid namespace and the system does not provide one.
fn isolation(config: &Config) -> Option<String> {
    let tools = isolated(config);
    let program = Program::this().filter(|_| !tools.is_empty())?;
    let why = program.check_isolation().err()?;
    Some(format!("{why}: calls of {} fail", tools.join(", ")))
}

/// The `PATH` set by the tool itself, if any; `None` if its value depends on the call.
fn own_path(command: &CommandTool) -> Option<Option<std::ffi::OsString>> {
    let set = command.template.env.iter().rev().find(|(name, _)| name == "PATH");
    let Some((_, template)) = set else {
        let of_file = command.variables().ok()?.into_iter().rev();
        return Some(of_file.into_iter().find(|(name, _)| name == "PATH").map(|(_, path)| path));
    };
    let text = template.fill(|_| Ok(None)).ok().flatten()?;
    Some(Some(text.into()))
}
