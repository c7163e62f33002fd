//! `[[tool]]`: tools, validated as far as possible before the first call.

use std::ffi::OsString;
use std::time::Duration;

use toml::Spanned;

use super::bounds::bounds;
use super::check::{Checker, Key};
use super::command_defaults::{KILL_GRACE, MAX_OUTPUT, NO_INPUT, TIMEOUT};
pub(super) use super::env_file::variable_flaw;
use super::error::{did_you_mean, line_of};
use super::forms::{heartbeat, isolation, on_disconnect, on_end, uri};
use super::json::Ordered;
use super::kinds::YEAR;
use super::progress::ProgressPattern;
use super::sections::TEXT_LIMITS;
use super::table::Part;
use super::units::show_size;
use super::{
    Builtin, ClientRoots, CommandTool, Daemon, EnvFile, Inherit, Limits, OnDisconnect, Output, Run,
    TaskSupport, Tool, ToolHints, code, identities, input, raw,
};
use crate::tools::arguments::{Arguments, CommandTemplate, CwdTemplate, Template};
use crate::tools::name::{NAME_HINT, is_name};
use ceased_process::Isolation;

const KILL_GRACE_MAX: Duration = Duration::from_secs(600);
const MAX_OUTPUT_MAX: u64 = 1 << 30;
/// The working directory that is the client's.
const CLIENT: &str = "client";
/// Largest `max_running`: the largest `workers` of `[daemon]`.
const MAX_RUNNING_MAX: u64 = 4096;

const fn key(name: &'static str) -> Key {
    Key { table: "[[tool]]", name }
}

/// All tools of the file.
pub(super) fn tools(
    raw: Vec<(usize, raw::Tool)>,
    limits: &Limits,
    daemon: &Daemon,
    check: &mut Checker<'_>,
) -> Vec<Tool> {
    let mut tools = Vec::new();
    let mut names: Vec<(String, usize)> = Vec::new();
    for (at, raw) in raw {
        if let Some(name) = &raw.name {
            let at = name.span().start;
            if let Some((_, first)) = names.iter().find(|(other, _)| other == name.get_ref()) {
                let what = format!("there is a second tool named {:?}", name.get_ref());
                let line = line_of(check.text, *first);
                check.problem(at, what, format!("the first is in line {line}; rename one"));
            }
            names.push((name.get_ref().clone(), at));
        }
        let said = raw
            .on_disconnect
            .as_ref()
            .and_then(|written| on_disconnect(key("on_disconnect"), written, check));
        let on_disconnect = said.unwrap_or(daemon.on_disconnect);
        let heartbeat =
            heartbeat(key("heartbeat"), raw.heartbeat.as_ref(), daemon.heartbeat, check);
        let isolation = isolation(
            key("isolation"),
            raw.confinement.isolation.as_ref(),
            daemon.isolation,
            check,
        );
        tools.extend(tool(at, raw, limits, daemon, check).map(|mut tool| {
            if let Run::Command(command) = &mut tool.run {
                command.isolation = isolation;
                if let Some(roots) = &mut command.client_roots {
                    roots.listed.clone_from(&daemon.roots);
                }
            }
            Tool { heartbeat, on_disconnect, ..tool }
        }));
    }
    tools
}

fn tool(
    at: usize,
    raw: raw::Tool,
    limits: &Limits,
    daemon: &Daemon,
    check: &mut Checker<'_>,
) -> Option<Tool> {
    let name = name(at, raw.name.as_ref(), check);
    let task_support = check.choice(
        key("task_support"),
        raw.task_support.as_ref(),
        TaskSupport::Forbidden,
        &[TaskSupport::Forbidden, TaskSupport::Optional, TaskSupport::Required]
            .map(|support| (support.as_str(), support)),
    );
    let timeout = check.duration(
        key("timeout"),
        raw.timeout.as_ref(),
        TIMEOUT,
        Duration::from_millis(1)..=YEAR,
    );
    let (run, arguments) = match (&raw.command, &raw.builtin) {
        (Some(command), None) => {
            let (run, arguments) = command_tool(command, &raw, limits, daemon, check)?;
            (Run::Command(Box::new(run)), arguments)
        }
        (None, Some(written)) => {
            let (builtin, arguments) = builtin(written, &raw, check)?;
            (Run::Builtin(builtin), arguments)
        }
        (Some(_), Some(builtin)) => {
            let what = "this [[tool]] has both `command` and `builtin`";
            check.problem(builtin.span().start, what, "leave one of them out");
            return None;
        }
        (None, None) => {
            let hint = "write command = [\"program\", \"argument\"] or builtin = \"echo\"";
            check.missing(at, "this [[tool]] has neither `command` nor `builtin`", hint);
            return None;
        }
    };
    let description = raw.description.map(Spanned::into_inner).or_else(|| match &run {
        Run::Builtin(builtin) => Some(builtin.description().to_owned()),
        Run::Command(_) => None,
    });
    let confirm = raw.confirm.as_ref().map(|text| {
        Templates { check, rules: Some(&arguments), mentioned: Vec::new() }.read("confirm", text)
    });
    let confirm = confirm.transpose().ok()?;
    let lock = lock(raw.lock.as_ref(), &arguments, check)?;
    let on_end = on_end(key("on_end"), raw.on_end.as_ref(), check);
    let max_running = raw.max_running.as_ref();
    let max_running = max_running
        .map(|written| check.whole(key("max_running"), Some(written), 1, 1..=MAX_RUNNING_MAX));
    let allow = identities::allow("[[tool]]", raw.allow.as_ref(), check);
    let read_only = raw.read_only.map_or(matches!(run, Run::Builtin(_)), Spanned::into_inner);
    let hints = ToolHints {
        destructive: raw.destructive.map(Spanned::into_inner),
        idempotent: raw.idempotent.map(Spanned::into_inner),
        open_world: raw.open_world.map(Spanned::into_inner),
    };
    let icon = raw.icon.as_ref();
    let icon = icon.and_then(|it| uri(key("icon"), it, &["https:", "data:"], check));
    let (name, title) = (name?, raw.title.map(Spanned::into_inner));
    Some(Tool {
        name,
        title,
        description,
        run,
        read_only,
        hints,
        icon,
        task_support,
        timeout,
        arguments,
        confirm,
        allow,
        max_running,
        lock,
        on_end,
        heartbeat: None,
        on_disconnect: OnDisconnect::default(),
    })
}

/// The lock of a tool; `None` where it is wrong, which has been noted.
#[expect(clippy::option_option, reason = "none is a value, and wrong is another")]
fn lock(
    raw: Option<&raw::Text>,
    arguments: &Arguments,
    check: &mut Checker<'_>,
) -> Option<Option<Template>> {
    let Some(raw) = raw else { return Some(None) };
    if raw.get_ref().is_empty() {
        let hint = "write a name, such as \"cargo\", or leave the key out";
        check.bad_value(key("lock"), raw.span().start, "\"\"", hint);
        return None;
    }
    let mut templates = Templates { check, rules: Some(arguments), mentioned: Vec::new() };
    Some(Some(templates.read("lock", raw).ok()?))
}

fn name(at: usize, raw: Option<&raw::Text>, check: &mut Checker<'_>) -> Option<String> {
    let Some(raw) = raw else {
        check.missing(at, "this [[tool]] has no `name`", "write name = \"…\"");
        return None;
    };
    let name = raw.get_ref();
    if is_name(name) {
        return Some(name.clone());
    }
    check.bad_value(key("name"), raw.span().start, &format!("{name:?}"), NAME_HINT);
    None
}

/// A built-in tool, which has its own input schema and no process.
fn builtin(
    written: &raw::Text,
    raw: &raw::Tool,
    check: &mut Checker<'_>,
) -> Option<(Builtin, Arguments)> {
    let mut of_commands = raw.environment.written();
    of_commands.extend(raw.confinement.written());
    raw.kill_grace.places("kill_grace", &mut of_commands);
    raw.max_output.places("max_output", &mut of_commands);
    raw.progress.places("progress", &mut of_commands);
    raw.output.places("output", &mut of_commands);
    raw.output_schema.places("output_schema", &mut of_commands);
    raw.text_limit.places("text_limit", &mut of_commands);
    raw.stdin.places("stdin", &mut of_commands);
    raw.input.places("input", &mut of_commands);
    raw.input_schema.places("input_schema", &mut of_commands);
    for (name, at) in of_commands {
        let what = format!("`{name}` in [[tool]] has no meaning for a builtin");
        check.problem(at, what, "it belongs to a tool with `command`; leave it out");
    }
    let choices = Builtin::ALL.map(|(name, builtin)| (name, Some(builtin)));
    let builtin = check.choice(key("builtin"), Some(written), None, &choices)?;
    let arguments =
        Arguments::new(builtin.input_schema()).expect("the schemas of builtins are valid");
    Some((builtin, arguments))
}

/// A command as a tool.
fn command_tool(
    command: &Spanned<Vec<raw::Text>>,
    raw: &raw::Tool,
    limits: &Limits,
    daemon: &Daemon,
    check: &mut Checker<'_>,
) -> Option<(CommandTool, Arguments)> {
    let before = check.problems.len();
    let kill_grace = check.duration(
        key("kill_grace"),
        raw.kill_grace.as_ref(),
        KILL_GRACE,
        Duration::ZERO..=KILL_GRACE_MAX,
    );
    let max_output = check.size(
        key("max_output"),
        raw.max_output.as_ref(),
        // A small write buffer alone must not make a file invalid.
        MAX_OUTPUT.min(limits.write_buffer_bytes),
        1..=MAX_OUTPUT_MAX,
    );
    if max_output > limits.write_buffer_bytes {
        // A result holds the output twice, as text and as structured content, and a peer is closed
        // at twice the write buffer.
        let at = raw.max_output.as_ref().map_or(command.span().start, |it| it.span().start);
        let what = format!("`max_output` in [[tool]] is {}", show_size(max_output as u64));
        let most = show_size(limits.write_buffer_bytes as u64);
        let hint = format!("more than `write_buffer_bytes` in [limits], {most}, cannot be sent");
        check.problem(at, what, hint);
    }
    let arguments = arguments(command.span().start, raw, check);
    let program = program(command, check);
    code::check(command.get_ref(), raw, arguments.as_ref(), check);
    let rest = command.get_ref().get(1..).unwrap_or_default();
    let mut templates = Templates { check, rules: arguments.as_ref(), mentioned: Vec::new() };
    let elements: Vec<_> = rest.iter().map(|text| templates.read("command", text)).collect();
    let stdin = raw.stdin.as_ref().map(|text| templates.read("stdin", text)).transpose();
    let env = templates.env(raw.environment.env.as_ref());
    let is_of_client = raw.environment.cwd.as_ref().is_some_and(|text| text.get_ref() == CLIENT);
    let cwd = raw.environment.cwd.as_ref().filter(|_| !is_of_client);
    let cwd = cwd.map(|text| templates.cwd(text)).transpose();
    if let Some(inputs) = raw.input.as_ref().filter(|_| templates.check.problems.len() == before) {
        // Parsed again, and its flaws reported, with the other keys of every tool.
        let lock = raw.lock.as_ref().and_then(|lock| Template::parse(lock.get_ref()).ok());
        let of_lock = lock.iter().flat_map(Template::arguments).map(str::to_owned);
        templates.mentioned.extend(of_lock);
        templates.unused(inputs);
    }
    let template = CommandTemplate {
        program: program?,
        elements: elements.into_iter().collect::<Result<_, _>>().ok()?,
        cwd: cwd.ok()?,
        env: env.ok()?,
        stdin: stdin.ok()?,
    };
    let run_as = identities::run_as("[[tool]]", raw.confinement.run_as.as_ref(), check);
    let inherit = inherited("[[tool]]", &raw.environment, check);
    let env_file =
        raw.environment.env_file.as_ref().and_then(|raw| check.path(key("env_file"), raw));
    let env_file = env_file.map(EnvFile::at);
    let home = check.environment.home.clone();
    let client_roots = is_of_client.then(|| ClientRoots { listed: Vec::new(), home });
    let progress = raw.progress.as_ref().and_then(|written| {
        ProgressPattern::new(written.get_ref())
            .map_err(|why| {
                let what = format!("`progress` in [[tool]] is {:?}", written.get_ref());
                check.problem(written.span().start, what, why);
            })
            .ok()
    });
    let (output, output_schema) = output(raw, check);
    let text_limit = raw.text_limit.as_ref();
    let text_limit = check.size(key("text_limit"), text_limit, daemon.text_limit, TEXT_LIMITS);
    let command = CommandTool {
        template,
        is_given: false,
        kill_grace,
        max_output,
        run_as,
        isolation: Isolation::default(),
        bounds: bounds("[[tool]]", &raw.confinement, check),
        inherit,
        env_file,
        client_roots,
        progress,
        output,
        output_schema,
        text_limit,
    };
    Some((command, arguments?))
}

/// Output that the result of a command shows, and its schema.
fn output(raw: &raw::Tool, check: &mut Checker<'_>) -> (Output, Option<Arguments>) {
    let output = check.choice(
        key("output"),
        raw.output.as_ref(),
        Output::Combined,
        &[
            ("combined", Output::Combined),
            ("stdout", Output::Stdout),
            ("json", Output::Json),
            ("content", Output::Content),
        ],
    );
    let Some(written) = &raw.output_schema else { return (output, None) };
    if output != Output::Json {
        let what = "`output_schema` in [[tool]] has a meaning with output = \"json\" only";
        check.problem(written.span().start, what, "set that, or leave it out");
        return (output, None);
    }
    match Arguments::new(&written.get_ref().to_string()) {
        Ok(schema) => (output, Some(schema)),
        Err(why) => {
            let what = "`output_schema` in [[tool]] is no schema for an object";
            check.problem(written.span().start, what, why.to_string());
            (output, None)
        }
    }
}

/// The schema of a command's arguments.
fn arguments(at: usize, raw: &raw::Tool, check: &mut Checker<'_>) -> Option<Arguments> {
    let (at, schema) = match (&raw.input, &raw.input_schema) {
        (Some(_), Some(schema)) => {
            let what = "this [[tool]] has both `input` and `input_schema`";
            check.problem(schema.span().start, what, "leave one of them out");
            return None;
        }
        (Some(inputs), None) => {
            (inputs.span().start, input::schema(inputs.get_ref(), check)?.to_string())
        }
        (None, Some(schema)) => (schema.span().start, schema.get_ref().to_string()),
        (None, None) => (at, NO_INPUT.to_owned()),
    };
    match Arguments::new(&schema) {
        Ok(arguments) => Some(arguments),
        Err(why) => {
            let what = "`input_schema` in [[tool]] is not a valid schema for a tool's arguments";
            check.problem(at, what, why.to_string());
            None
        }
    }
}

/// The program: never an argument, and always the same file.
fn program(command: &Spanned<Vec<raw::Text>>, check: &mut Checker<'_>) -> Option<OsString> {
    let Some(first) = command.get_ref().first() else {
        let hint = "write the program and its arguments, such as [\"make\", \"all\"]";
        check.bad_value(key("command"), command.span().start, "[]", hint);
        return None;
    };
    let text = first.get_ref();
    let hint = match Template::parse(text) {
        Err(why) => why,
        Ok(_) if text.is_empty() => "the first element names the program".into(),
        Ok(_) if text.contains('\0') => "must not contain a NUL byte".into(),
        Ok(template) => match template.fill(|_| Ok(None)) {
            Ok(Some(name)) if !name.contains('/') => return Some(name.into()),
            Ok(Some(path)) => match check.anchored(&path) {
                Ok((base, rest)) => return Some(base.join(rest).into()),
                Err(hint) => hint.into(),
            },
            Ok(None) | Err(_) => {
                "the first element names the program; it cannot come from an argument".into()
            }
        },
    };
    let what = format!("`command` in [[tool]] runs {text:?}");
    check.problem(first.span().start, what, hint);
    None
}

/// Variables that a command inherits from the daemon's environment.
pub(super) fn inherited(table: &str, raw: &raw::Environment, check: &mut Checker<'_>) -> Inherit {
    let pass_env = raw.pass_env.as_ref();
    let everything = raw.inherit_env.as_ref().is_some_and(|all| *all.get_ref());
    let mut also = Vec::new();
    for written in pass_env.iter().flat_map(|list| list.get_ref()) {
        let (name, at) = (written.get_ref(), written.span().start);
        let stem = name.strip_suffix('*').unwrap_or(name);
        let hint = if name == "*" {
            Some("to pass all variables of the daemon set inherit_env = true")
        } else if stem.contains('*') {
            Some("`*` is allowed only at the end of a name")
        } else {
            variable_flaw(stem)
        };
        match hint {
            None => also.push(name.clone()),
            Some(hint) => check.problem(at, format!("`pass_env` in {table} names {name:?}"), hint),
        }
    }
    if let (true, Some(pass)) = (everything, pass_env) {
        let what = format!("this {table} has both `pass_env` and inherit_env = true");
        check.problem(
            pass.span().start,
            what,
            "all variables are passed then; leave one of them out",
        );
    }
    Inherit { everything, also }
}

/// An invalid template; the problem has been reported.
struct Wrong;

/// Parser of the templates of one tool.
struct Templates<'t, 'c> {
    check: &'t mut Checker<'c>,
    /// The declared inputs; `None` if unknown.
    rules: Option<&'t Arguments>,
    mentioned: Vec<String>,
}

impl Templates<'_, '_> {
    /// Parses a template and checks that its arguments are declared.
    fn read(&mut self, name: &'static str, raw: &raw::Text) -> Result<Template, Wrong> {
        self.template(name, raw.get_ref(), raw.span().start)
    }

    fn template(&mut self, name: &str, text: &str, at: usize) -> Result<Template, Wrong> {
        let what = format!("`{name}` in [[tool]] holds {text:?}");
        let template = match Template::parse(text) {
            Ok(_) if text.contains('\0') && name != "stdin" => {
                self.check.problem(at, what, "must not contain a NUL byte");
                return Err(Wrong);
            }
            Ok(template) => template,
            Err(why) => {
                self.check.problem(at, what, why);
                return Err(Wrong);
            }
        };
        let mut sound = true;
        for argument in template.arguments() {
            self.mentioned.push(argument.to_owned());
            let Some(rules) = self.rules else { continue };
            let declared: Vec<&str> = rules.declared().iter().map(String::as_str).collect();
            if !declared.contains(&argument) {
                let what = format!(
                    "`{name}` in [[tool]] mentions {{{argument}}}, which no input declares"
                );
                let hint = did_you_mean(argument, "inputs", &declared);
                let more = "write {{ and }} for braces themselves";
                self.check.problem(at, what, format!("{hint} ({more})"));
                sound = false;
            }
        }
        if sound { Ok(template) } else { Err(Wrong) }
    }

    fn env(
        &mut self,
        raw: Option<&Spanned<Ordered<raw::Text>>>,
    ) -> Result<Vec<(String, Template)>, Wrong> {
        let mut variables = Ok(Vec::new());
        for (name, value) in raw.iter().flat_map(|raw| &raw.get_ref().0) {
            let at = name.span().start;
            let name = name.get_ref();
            if let Some(hint) = variable_flaw(name) {
                self.check.problem(at, format!("`env` in [[tool]] sets {name:?}"), hint);
                variables = Err(Wrong);
            }
            match (self.read("env", value), &mut variables) {
                (Ok(template), Ok(list)) => list.push((name.clone(), template)),
                (Ok(_), Err(Wrong)) => {}
                (Err(Wrong), _) => variables = Err(Wrong),
            }
        }
        variables
    }

    fn cwd(&mut self, raw: &raw::Text) -> Result<CwdTemplate, Wrong> {
        let (text, at) = (raw.get_ref(), raw.span().start);
        let (base, rest) = match self.check.anchored(text) {
            Ok((base, rest)) if !text.is_empty() => (base, rest.to_owned()),
            Ok(_) => {
                let hint = "write a directory, or leave the key out";
                self.check.bad_value(key("cwd"), at, "\"\"", hint);
                return Err(Wrong);
            }
            Err(hint) => {
                self.check.bad_value(key("cwd"), at, &format!("{text:?}"), hint);
                return Err(Wrong);
            }
        };
        let rest = self.template("cwd", &rest, at)?;
        if rest.arguments().next().is_some() && text.split('/').any(|part| part == "..") {
            let hint =
                "`..` is not allowed with an argument: the directory must stay below a fixed one";
            self.check.bad_value(key("cwd"), at, &format!("{text:?}"), hint);
            return Err(Wrong);
        }
        Ok(CwdTemplate { base, rest })
    }

    /// Reports declared inputs that no template uses.
    fn unused(&mut self, inputs: &Spanned<Ordered<raw::Input>>) {
        for (name, _) in &inputs.get_ref().0 {
            if !self.mentioned.contains(name.get_ref()) {
                let (at, name) = (name.span().start, name.get_ref());
                let what = format!("the input `{name}` is used nowhere");
                let hint =
                    format!("write {{{name}}} in `command`, `stdin`, `env`, `cwd` or `lock`");
                self.check.problem(at, what, hint);
            }
        }
    }
}
