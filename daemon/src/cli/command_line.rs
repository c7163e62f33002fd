//! Words of a command line that users expect elsewhere: options of the daemon before the command, and
//! arguments of a tool written as options.

use std::ffi::{OsStr, OsString};

use clap::CommandFactory as _;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::args::Arguments;

/// Options with a value that most commands have.
const WITH_VALUE: [&str; 6] = ["--socket", "-s", "--tcp", "--token-file", "--config", "-c"];
/// Options without a value that most commands have.
const ALONE: [&str; 1] = ["--json"];
/// Commands of a feature, and whether this build has it.
const OF_FEATURES: [(&str, &str, bool); 4] = [
    ("probe", "probe", cfg!(feature = "probe")),
    ("login", "tls", cfg!(feature = "tls")),
    ("logout", "tls", cfg!(feature = "tls")),
    ("top", "top", cfg!(feature = "top")),
];

/// The words, with leading options behind the command: `ceased --socket X tools` is
/// `ceased tools --socket X`.
pub(super) fn reordered(mut words: Vec<OsString>) -> Vec<OsString> {
    let mut end = 1;
    while let Some(word) = words.get(end).and_then(|word| word.to_str()) {
        let name = word.split_once('=').map_or(word, |(name, _)| name);
        end += match () {
            () if ALONE.contains(&word) => 1,
            () if WITH_VALUE.contains(&name) => {
                if name == word {
                    2
                } else {
                    1
                }
            }
            () => break,
        };
    }
    let mut command = Arguments::command();
    let mut place = end;
    while let Some(found) = words.get(place).and_then(|word| command.find_subcommand(word)) {
        command = found.clone();
        place += 1;
    }
    if place > end {
        words.get_mut(1..place).unwrap_or_default().rotate_left(end - 1);
    }
    words
}

/// The error, with a tip of its own where a command is not in this build, or an argument of a tool is
/// written as an option.
pub(super) fn explained(error: clap::Error, words: &[OsString]) -> clap::Error {
    if error.kind() == ErrorKind::InvalidSubcommand {
        return left_out(error, &OF_FEATURES);
    }
    as_option(error, words)
}

/// The error, with the feature of a command that this build leaves out.
fn left_out(mut error: clap::Error, commands: &[(&str, &str, bool)]) -> clap::Error {
    let Some(ContextValue::String(command)) = error.get(ContextKind::InvalidSubcommand) else {
        return error;
    };
    let of = commands.iter().find(|(name, _, is_built)| name == command && !is_built);
    let Some((_, feature, _)) = of else { return error };
    let tip =
        format!("this program was built without it; it needs the feature `{feature}` of ceased");
    error.remove(ContextKind::SuggestedSubcommand);
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    error
}

fn as_option(mut error: clap::Error, words: &[OsString]) -> clap::Error {
    let is_call = words.get(1).is_some_and(|command| command == "call");
    if error.kind() != ErrorKind::UnknownArgument || !is_call {
        return error;
    }
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else {
        return error;
    };
    let option = option.split_once('=').map_or(option.as_str(), |(name, _)| name).to_owned();
    let Some(name) = option.strip_prefix("--").filter(|name| !name.is_empty()) else {
        return error;
    };
    let written = |word: &&OsString| word.to_str().is_some_and(|word| word.starts_with(&option));
    let value = words.iter().position(|word| written(&word)).and_then(|at| {
        let word = words.get(at)?.to_str()?;
        let after = words.get(at + 1).and_then(|word| OsStr::to_str(word));
        word.split_once('=').map(|(_, value)| value).or(after.filter(|it| !it.starts_with('-')))
    });
    let value = value.unwrap_or("VALUE");
    let tip = format!("arguments of a tool have no dashes: {name}={value}");
    error.remove(ContextKind::SuggestedArg);
    error.remove(ContextKind::Usage);
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn options_of_the_daemon_may_come_first() {
        for (line, expected) in [
            ("ceased --socket x tools", "ceased tools --socket x"),
            ("ceased --socket=x --json ps", "ceased ps --socket=x --json"),
            ("ceased -c f store check --json", "ceased store check -c f --json"),
            ("ceased -s x call count n=3", "ceased call -s x count n=3"),
            ("ceased tools --socket x", "ceased tools --socket x"),
            ("ceased --socket x nonsense", "ceased --socket x nonsense"),
            ("ceased --version", "ceased --version"),
            ("ceased --socket", "ceased --socket"),
            ("ceased", "ceased"),
        ] {
            assert_eq!(reordered(words(line)), words(expected), "{line}");
        }
    }

    #[test]
    fn argument_of_a_tool_as_an_option_gets_a_tip() {
        use clap::Parser as _;
        for (line, tip) in [
            ("ceased call count --n 3", "n=3"),
            ("ceased call count --n=3", "n=3"),
            ("ceased call count --n", "n=VALUE"),
        ] {
            let words = words(line);
            let error = Arguments::try_parse_from(&words).expect_err("no option");
            let said = explained(error, &words).to_string();
            assert!(said.contains(tip) && !said.contains("--config"), "{said}");
        }
    }

    #[test]
    fn command_of_an_absent_feature_gets_a_tip() {
        use clap::Parser as _;
        let parsed = |line| Arguments::try_parse_from(words(line)).expect_err("no command");
        let said = left_out(parsed("ceased probee x"), &[("probee", "probe", false)]).to_string();
        assert!(said.contains("the feature `probe` of ceased"), "{said}");
        assert!(!said.contains("similar"), "{said}");
        for commands in [[("probee", "probe", true)], [("top", "top", false)]] {
            let said = left_out(parsed("ceased probee x"), &commands).to_string();
            assert!(!said.contains("the feature"), "{said}");
        }
    }

    #[test]
    fn command_after_options_needs_no_dashes() {
        use clap::Parser as _;
        for line in [
            "ceased wrap --name a server --name b -- c",
            "ceased wrap --name a -- server --name b -- c",
            "ceased run --timeout 1 ls -la",
            "ceased run -t 1.5 -- ls -la",
            "ceased probe --timeout 5s server --tool x",
        ] {
            let words = words(line);
            assert!(Arguments::try_parse_from(&words).is_ok(), "{line}");
        }
        for line in ["ceased wrap --nam a server", "ceased run", "ceased wrap --"] {
            assert!(Arguments::try_parse_from(words(line)).is_err(), "{line}");
        }
    }
}
