//! Detection of inputs in code: rejects a command in which the caller of the tool could write part
//! of a program.
//!
//! The table in [`table`] lists interpreters with the options that take code, and programs that run
//! another one. A command is parsed as those programs parse it: options joined or separate, in
//! clusters (`-ec`), long with `=` or abbreviated, behind any number of wrappers.
//!
//! Limits: programs not in the table are assumed to run no code; their arguments are still searched
//! for an interpreter with a code option (`docker exec box sh -c …`). Code in the configuration can
//! evaluate its arguments or its input (`sh -c 'eval "$1"'`), an input that begins with `-` can be
//! an option (`check` warns about that, see [`option_warning`]), a script named by an input can be
//! any file, and database clients run SQL. Optional elements are treated as present.

mod scan;
mod table;

use toml::Spanned;

use self::scan::{ANY, Finding, KNOWN, Scan, TAME, is_code};
use self::table::controls_code;
use super::check::Checker;
use super::raw;
use crate::tools::arguments::{Arguments, CommandTemplate, Template};

/// Reports inputs in the code of a tool's command, standard input and variables.
pub(super) fn check(
    command: &[raw::Text],
    raw: &raw::Tool,
    arguments: Option<&Arguments>,
    check: &mut Checker<'_>,
) {
    let word =
        |text: &str| Template::parse(text).map_or_else(|_| text.into(), |it| mark(&it, arguments));
    let words: Vec<String> = command.iter().map(|text| word(text.get_ref())).collect();
    let stdin = raw.stdin.as_ref().map(|text| word(text.get_ref()));
    match Scan::new(words, stdin, false).find() {
        None => {}
        Some(Finding::Stdin(program)) => {
            let Some(stdin) = raw.stdin.as_ref() else { return };
            let text = stdin.get_ref();
            let what = format!("`stdin` in [[tool]] puts an argument into code: {text:?}");
            let hint = format!(
                "{program} would run it; write the code into `command`, as in [\"sh\", \"-c\", \
                 'cat'], and let it read its standard input"
            );
            check.problem(stdin.span().start, what, hint);
        }
        Some(finding @ (Finding::Code(at) | Finding::Option(at, _) | Finding::Program(at))) => {
            if let Some(element) = command.get(at) {
                element_problem(&finding, element, check);
            }
        }
    }
    for (name, value) in raw.environment.env.pairs() {
        if controls_code(name.get_ref()) && is_code(&word(value.get_ref())) {
            let (name, text) = (name.get_ref(), value.get_ref());
            let what = format!("`env` in [[tool]] puts an argument into {name}: {text:?}");
            let hint = "this variable controls what a program runs or loads; pass the input to the \
                        command as an argument";
            check.problem(value.span().start, what, hint);
        }
    }
}

/// Warning about a command whose program could parse an input as an option that takes code.
pub(crate) fn option_warning(template: &CommandTemplate, arguments: &Arguments) -> Option<String> {
    let program = template.program.to_string_lossy().into_owned();
    let words = template.elements.iter().map(|element| mark(element, Some(arguments)));
    let words = std::iter::once(program).chain(words).collect();
    let stdin = template.stdin.as_ref().map(|text| mark(text, Some(arguments)));
    match Scan::new(words, stdin, true).find()? {
        Finding::Option(at, program) => {
            let element = template.elements.get(at.checked_sub(1)?)?.to_string();
            Some(format!(
                "{program} may parse {element:?} as an option, which can inject code; write \"--\" \
                 before it, or restrict the input by `enum` or by a `pattern` that no text with a \
                 leading `-` matches"
            ))
        }
        Finding::Stdin(program) => {
            Some(format!("{program} may parse text from `stdin` as options, which can inject code"))
        }
        Finding::Code(_) | Finding::Program(_) => None,
    }
}

fn element_problem(finding: &Finding, element: &Spanned<String>, check: &mut Checker<'_>) {
    let text = element.get_ref();
    let template = Template::parse(text).ok();
    let name = template.as_ref().and_then(|it| it.arguments().next()).unwrap_or("input");
    let (what, hint) = match finding {
        Finding::Code(_) | Finding::Stdin(_) => (
            format!("`command` in [[tool]] puts an argument into code: {text:?}"),
            format!(
                "it would be executed as code; pass it as a separate argument, as in \
                 [\"sh\", \"-c\", 'echo \"$1\"', \"sh\", \"{{{name}}}\"]"
            ),
        ),
        Finding::Option(_, program) => (
            format!("`command` in [[tool]] lets an argument be an option of {program}: {text:?}"),
            "an option can inject code; write the option out, or restrict the input by \
             `enum`"
                .to_owned(),
        ),
        Finding::Program(_) => (
            format!("`command` in [[tool]] lets an argument name a program: {text:?}"),
            "write the program itself, or restrict the input by `enum`".to_owned(),
        ),
    };
    check.problem(element.span().start, what, hint);
}

/// The text of a template with each input replaced by a mark of its possible values.
fn mark(template: &Template, arguments: Option<&Arguments>) -> String {
    let text = template.fill(|name| {
        let takes =
            |texts: &[&str]| arguments.is_none_or(|rules| rules.takes_any_text(name, texts));
        Ok(Some(if !takes(&PROBES) {
            KNOWN.into()
        } else if takes(&OPTIONS) {
            ANY.to_string().into()
        } else {
            TAME.to_string().into()
        }))
    });
    text.ok().flatten().unwrap_or_default()
}

/// Texts that no `enum` would list: an input that accepts one of them accepts arbitrary text.
const PROBES: [&str; 10] = [
    "zqxjk",
    "ZQXJK",
    "Zqxjk9",
    "zq_xjk",
    "zq-xjk",
    "zq/xjk",
    "zq xjk; zq",
    "-czqxjk",
    "7zqxjk",
    "zqxjk=$(zq)",
];
/// Texts that are options.
const OPTIONS: [&str; 8] = ["-c", "-e", "-czqxjk", "-e zq", "--eval=zqxjk", "--", "-", "-zq/xjk"];

#[cfg(test)]
mod tests;
