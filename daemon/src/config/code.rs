//! Input in code: refuses a command in which whoever calls the tool would write part of a program.
//!
//! The table in [`table`] lists interpreters with the options that bring code, and programs that
//! run another one. A command is read as those programs read it: options joined or apart, in
//! clusters (`-ec`), long with `=` or abbreviated, behind any number of wrappers.
//!
//! Limits: a program that is not in the table is not known to run code; its arguments are still
//! searched for an interpreter with a code option (`docker exec box sh -c …`). Code that is written
//! in the configuration can run its own arguments or its input (`sh -c 'eval "$1"'`), an input that
//! begins with `-` can be an option (of which `check` warns, see [`option_warning`]), a script that
//! an input names can be any file, and clients of databases run SQL. What an element brings that a
//! call may leave out is taken as being there.

mod scan;
mod table;

use toml::Spanned;

use self::scan::{ANY, Finding, KNOWN, Scan, TAME, is_code};
use self::table::VARIABLES;
use super::check::Checker;
use super::raw;
use crate::tools::arguments::{Arguments, CommandTemplate, Template};

/// Notes what is wrong with the command, the standard input and the variables of a tool.
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
            let Some(stdin) = &raw.stdin else { return };
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
    for (name, value) in raw.env.iter().flat_map(|env| &env.get_ref().0) {
        let decides = VARIABLES.split_ascii_whitespace().any(|known| known == name.get_ref());
        if decides && is_code(&word(value.get_ref())) {
            let (name, text) = (name.get_ref(), value.get_ref());
            let what = format!("`env` in [[tool]] puts an argument into {name}: {text:?}");
            let hint = "that variable decides what a program runs or loads; give the input to the \
                        command as an argument";
            check.problem(value.span().start, what, hint);
        }
    }
}

/// The warning of a command whose program could take an input for an option that brings code.
pub(crate) fn option_warning(template: &CommandTemplate, arguments: &Arguments) -> Option<String> {
    let program = template.program.to_string_lossy().into_owned();
    let words = template.elements.iter().map(|element| mark(element, Some(arguments)));
    let words = std::iter::once(program).chain(words).collect();
    let stdin = template.stdin.as_ref().map(|text| mark(text, Some(arguments)));
    match Scan::new(words, stdin, true).find()? {
        Finding::Option(at, program) => {
            let element = template.elements.get(at.checked_sub(1)?)?.to_string();
            Some(format!(
                "{program} may take {element:?} for an option, which can bring code; write \"--\" \
                 before it, or restrict the input by `enum` or by a `pattern` that no text with a \
                 leading `-` matches"
            ))
        }
        Finding::Stdin(program) => Some(format!(
            "what {program} reads from `stdin` may be taken for options that bring code"
        )),
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
                "it would be run, not read; give it to the code as an argument of its own, as in \
                 [\"sh\", \"-c\", 'echo \"$1\"', \"sh\", \"{{{name}}}\"]"
            ),
        ),
        Finding::Option(_, program) => (
            format!("`command` in [[tool]] lets an argument be an option of {program}: {text:?}"),
            "an option can bring code that is run; write the option out, or restrict the input by \
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

/// The text of a template, with a mark for each input by what it can be.
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

/// Texts that nobody lists in an `enum`; who takes one of them takes many.
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
