//! `[[tool]]`: tools, validated as far as possible before the first call.

use std::ffi::OsString;
use std::time::Duration;

use toml::Spanned;

use super::bounds::bounds;
use super::check::{Checker, Key};
use super::command_defaults::{KILL_GRACE, MAX_OUTPUT, NO_INPUT, TIMEOUT};
use super::entry::Entry;
use super::env_file::variable_flaw;
use super::error::{did_you_mean, line_of};
use super::forms::{Disconnect, EndCommand, Heartbeat, ISOLATION, Uri};
use super::json::Ordered;
use super::kinds::{Bytes, Choice, Count, FilePath, Flag, GIB, Kind, MS, Time, YEAR};
use super::launch::inherited;
use super::progress::ProgressPattern;
use super::sections::TEXT_LIMITS;
use super::server_table::TASK_SUPPORT;
use super::table::Part;
use super::units::show_size;
use super::{
    Builtin, ClientRoots, CommandTool, Daemon, EnvFile, Limits, OnDisconnect, Output, Run,
    TaskSupport, Tool, ToolHints, code, identities, input, raw,
};
use crate::tools::arguments::{Arguments, CommandTemplate, CwdTemplate, Template};
use crate::tools::name::{NAME_HINT, is_name};
use ceased_process::Isolation;

const KILL_GRACE_MAX: Duration = Duration::from_secs(600);
const COMMAND: Key = Key { table: "[[tool]]", name: "command" };
const CWD: Key = Key { table: "[[tool]]", name: "cwd" };
/// The working directory that is the client's.
const CLIENT: &str = "client";
/// Largest `max_running`: the largest `workers` of `[daemon]`.
const MAX_RUNNING_MAX: u64 = 4096;

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
        if let Some(name) = raw.name.as_ref() {
            let at = name.span().start;
            if let Some((_, first)) = names.iter().find(|(other, _)| other == name.get_ref()) {
                let what = format!("there is a second tool named {:?}", name.get_ref());
                let line = line_of(check.text, *first);
                check.problem(at, what, format!("the first is in line {line}; rename one"));
            }
            names.push((name.get_ref().clone(), at));
        }
        let on_disconnect = raw.on_disconnect.or(daemon.on_disconnect, &Disconnect, check);
        let heartbeat = raw.heartbeat.or(daemon.heartbeat, &Heartbeat, check);
        let isolation = raw.confinement.isolation.or(daemon.isolation, &ISOLATION, check);
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
    let name = name(at, &raw.name, check);
    let (run, arguments) = implementation(at, &raw, limits, daemon, check)?;
    let confirm = raw.confirm.as_ref().map(|text| {
        Templates { check, rules: Some(&arguments), mentioned: Vec::new() }.read("confirm", text)
    });
    let confirm = confirm.transpose().ok()?;
    let lock = lock(&raw.lock, &arguments, check)?;
    let usual_description = match &run {
        Run::Builtin(builtin) => Some(builtin.description().to_owned()),
        Run::Command(_) => None,
    };
    Some(Tool {
        task_support: raw.task_support.or(TaskSupport::Forbidden, &TASK_SUPPORT, check),
        timeout: raw.timeout.or(TIMEOUT, &Time(MS..=YEAR), check),
        read_only: raw.read_only.or(matches!(run, Run::Builtin(_)), &Flag, check),
        hints: ToolHints {
            destructive: raw.destructive.into_inner(),
            idempotent: raw.idempotent.into_inner(),
            open_world: raw.open_world.into_inner(),
        },
        icon: raw.icon.read(&Uri(&["https:", "data:"]), check),
        allow: identities::allow(&raw.allow, check),
        max_running: raw.max_running.read(&Count(1..=MAX_RUNNING_MAX), check),
        on_end: raw.on_end.read(&EndCommand, check),
        name: name?,
        title: raw.title.into_inner(),
        description: raw.description.into_inner().or(usual_description),
        run,
        arguments,
        confirm,
        lock,
        heartbeat: None,
        on_disconnect: OnDisconnect::default(),
    })
}

/// The command of a tool or the builtin, and the schema of its arguments.
fn implementation(
    at: usize,
    raw: &raw::Tool,
    limits: &Limits,
    daemon: &Daemon,
    check: &mut Checker<'_>,
) -> Option<(Run, Arguments)> {
    match (raw.command.as_ref(), raw.builtin.at()) {
        (Some(command), None) => {
            let (run, arguments) = command_tool(command, raw, limits, daemon, check)?;
            Some((Run::Command(Box::new(run)), arguments))
        }
        (None, Some(_)) => {
            let (builtin, arguments) = builtin(raw, check)?;
            Some((Run::Builtin(builtin), arguments))
        }
        (Some(_), Some(builtin)) => {
            let what = "this [[tool]] has both `command` and `builtin`";
            check.problem(builtin, what, "leave one of them out");
            None
        }
        (None, None) => {
            let hint = "write command = [\"program\", \"argument\"] or builtin = \"echo\"";
            check.missing(at, "this [[tool]] has neither `command` nor `builtin`", hint);
            None
        }
    }
}

/// The lock of a tool; `None` where it is wrong, which has been noted.
#[expect(clippy::option_option, reason = "none is a value, and wrong is another")]
fn lock(
    entry: &Entry<String>,
    arguments: &Arguments,
    check: &mut Checker<'_>,
) -> Option<Option<Template>> {
    let Some(raw) = entry.as_ref() else { return Some(None) };
    if raw.get_ref().is_empty() {
        let hint = "write a name, such as \"cargo\", or leave the key out";
        check.bad_value(entry.key(), raw.span().start, "\"\"", hint);
        return None;
    }
    let mut templates = Templates { check, rules: Some(arguments), mentioned: Vec::new() };
    Some(Some(templates.read("lock", raw).ok()?))
}

fn name(at: usize, entry: &Entry<String>, check: &mut Checker<'_>) -> Option<String> {
    let Some(raw) = entry.as_ref() else {
        check.missing(at, "this [[tool]] has no `name`", "write name = \"…\"");
        return None;
    };
    let name = raw.get_ref();
    if is_name(name) {
        return Some(name.clone());
    }
    check.bad_value(entry.key(), raw.span().start, &format!("{name:?}"), NAME_HINT);
    None
}

/// A built-in tool, which has its own input schema and no process.
fn builtin(raw: &raw::Tool, check: &mut Checker<'_>) -> Option<(Builtin, Arguments)> {
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
    let builtin = raw.builtin.read(&Choice(&Builtin::ALL), check)?;
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
    let max_output = max_output(command.span().start, raw, limits, check);
    let arguments = arguments(command.span().start, raw, check);
    let program = program(command, check);
    code::check(command.get_ref(), raw, arguments.as_ref(), check);
    let rest = command.get_ref().get(1..).unwrap_or_default();
    let mut templates = Templates { check, rules: arguments.as_ref(), mentioned: Vec::new() };
    let elements: Vec<_> = rest.iter().map(|text| templates.read("command", text)).collect();
    let stdin = raw.stdin.as_ref().map(|text| templates.read("stdin", text)).transpose();
    let env = templates.env(&raw.environment.env);
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
    let home = check.environment.home.clone();
    let (output, output_schema) = output(raw, check);
    let kill_grace = Time(Duration::ZERO..=KILL_GRACE_MAX);
    let command = CommandTool {
        template,
        is_given: false,
        kill_grace: raw.kill_grace.or(KILL_GRACE, &kill_grace, check),
        max_output,
        run_as: identities::run_as(&raw.confinement.run_as, check),
        isolation: Isolation::default(),
        bounds: bounds(&raw.confinement, check),
        inherit: inherited(&raw.environment, check),
        env_file: raw.environment.env_file.read(&FilePath, check).map(EnvFile::at),
        client_roots: is_of_client.then(|| ClientRoots { listed: Vec::new(), home }),
        progress: raw.progress.read(&Pattern, check),
        output,
        output_schema,
        text_limit: raw.text_limit.or(daemon.text_limit, &Bytes(TEXT_LIMITS), check),
    };
    Some((command, arguments?))
}

/// Bytes of output that are kept; `at` is the position of the command.
fn max_output(at: usize, raw: &raw::Tool, limits: &Limits, check: &mut Checker<'_>) -> usize {
    // A small write buffer alone must not make a file invalid.
    let usual = MAX_OUTPUT.min(limits.write_buffer_bytes);
    let max_output = raw.max_output.or(usual, &Bytes(1..=GIB), check);
    if max_output > limits.write_buffer_bytes {
        // A result holds the output twice, as text and as structured content, and a peer is closed
        // at twice the write buffer.
        let what = format!("`max_output` in [[tool]] is {}", show_size(max_output as u64));
        let most = show_size(limits.write_buffer_bytes as u64);
        let hint = format!("more than `write_buffer_bytes` in [limits], {most}, cannot be sent");
        check.problem(raw.max_output.at().unwrap_or(at), what, hint);
    }
    max_output
}

/// A pattern that reads progress.
struct Pattern;

impl Kind<ProgressPattern> for Pattern {
    type Written = String;

    fn parse(
        &self,
        key: Key,
        written: &raw::Text,
        check: &mut Checker<'_>,
    ) -> Option<ProgressPattern> {
        let text = written.get_ref();
        let flaw = match ProgressPattern::new(text) {
            Ok(pattern) => return Some(pattern),
            Err(flaw) => flaw,
        };
        check.bad_value(key, written.span().start, &format!("{text:?}"), flaw);
        None
    }

    fn show(&self, value: &ProgressPattern) -> Option<String> {
        Some(value.to_string())
    }
}

/// Output that the result of a command shows, and its schema.
fn output(raw: &raw::Tool, check: &mut Checker<'_>) -> (Output, Option<Arguments>) {
    let outputs = Choice(&[
        ("combined", Output::Combined),
        ("stdout", Output::Stdout),
        ("json", Output::Json),
        ("content", Output::Content),
    ]);
    let output = raw.output.or(Output::Combined, &outputs, check);
    let Some(written) = raw.output_schema.as_ref() else { return (output, None) };
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
    let (at, schema) = match (raw.input.as_ref(), raw.input_schema.as_ref()) {
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
        check.bad_value(COMMAND, command.span().start, "[]", hint);
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

    fn env(&mut self, raw: &Entry<Ordered<raw::Text>>) -> Result<Vec<(String, Template)>, Wrong> {
        let mut variables = Ok(Vec::new());
        for (name, value) in raw.pairs() {
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
                self.check.bad_value(CWD, at, "\"\"", hint);
                return Err(Wrong);
            }
            Err(hint) => {
                self.check.bad_value(CWD, at, &format!("{text:?}"), hint);
                return Err(Wrong);
            }
        };
        let rest = self.template("cwd", &rest, at)?;
        if rest.arguments().next().is_some() && text.split('/').any(|part| part == "..") {
            let hint =
                "`..` is not allowed with an argument: the directory must stay below a fixed one";
            self.check.bad_value(CWD, at, &format!("{text:?}"), hint);
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
