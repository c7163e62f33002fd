//! Parses a command as the programs in it would.

use super::table::{GIT_COMMAND, Operands, PROGRAMS, Program, SETTINGS, controls_code};

/// Marks an input that can be any text.
pub(super) const ANY: char = '\u{e000}';
/// Marks an input that can be many texts, but no option.
pub(super) const TAME: char = '\u{e001}';
/// Marks an input with listed values, or a number.
pub(super) const KNOWN: &str = "0";
/// Paths of the standard input.
const STDIN: [&str; 4] = ["-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"];
/// Maximum nesting of wrappers.
const DEPTH_MAX: usize = 16;

/// A flaw of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Finding {
    /// This element is code that contains an input.
    Code(usize),
    /// An input is in an option cluster, or may be an option, that can inject code.
    Option(usize, &'static str),
    /// This element names the program.
    Program(usize),
    /// Input is part of the code read from standard input.
    Stdin(&'static str),
}

pub(super) fn is_code(word: &str) -> bool {
    word.contains([ANY, TAME])
}

fn lists(words: &str, word: &str) -> bool {
    words.split_ascii_whitespace().any(|known| known == word)
}

/// Looks up a program by name or path.
fn lookup(word: &str) -> Option<(&'static Program, &'static str)> {
    let name = word.rsplit('/').next().unwrap_or_default();
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | '-'));
    [name, stem].into_iter().find_map(|name| {
        PROGRAMS.iter().find_map(|program| {
            let known = program.names.split_ascii_whitespace().find(|known| *known == name)?;
            Some((program, known))
        })
    })
}

/// A command with marked inputs.
pub(super) struct Scan {
    words: Vec<String>,
    stdin: Option<String>,
    depth: usize,
    /// Whether an input that can begin with `-` is reported where an interpreter expects options.
    is_wary: bool,
}

/// State of the scan of a program's arguments.
#[derive(Default)]
struct Seen {
    /// An option supplied code.
    code: bool,
    /// `-c` of a shell, which makes the first operand code.
    flag: bool,
    /// `-s` of a shell.
    stdin: bool,
    operands: usize,
    /// No options follow.
    ended: bool,
    /// The replacement string of `xargs -I`.
    replaced: Option<String>,
}

/// Result of scanning an argument.
enum Step {
    /// Continue with this argument.
    On(usize),
    Found(Finding),
    /// The remaining arguments do not belong to this program.
    Done,
}

impl Scan {
    pub(super) const fn new(words: Vec<String>, stdin: Option<String>, is_wary: bool) -> Self {
        Self { words, stdin, depth: 0, is_wary }
    }

    /// Returns the first flaw of the command, if any.
    pub(super) fn find(&self) -> Option<Finding> {
        self.command(0)
    }

    /// Scans a command that begins at this element.
    fn command(&self, at: usize) -> Option<Finding> {
        let word = self.words.get(at)?;
        if is_code(word) {
            // The program name itself is checked elsewhere.
            return (at > 0 || self.depth > 0).then_some(Finding::Program(at));
        }
        match lookup(word) {
            Some((program, name)) => self.arguments(program, name, at + 1, true),
            None => self.nested(at + 1),
        }
    }

    /// Searches the arguments of an unknown program for interpreters.
    fn nested(&self, from: usize) -> Option<Finding> {
        (from..self.words.len()).find_map(|at| {
            let (program, name) = lookup(self.words.get(at)?)?;
            let found = self.arguments(program, name, at + 1, false);
            found.filter(|finding| matches!(finding, Finding::Code(_)))
        })
    }

    /// Scans the arguments of a program. If it is not certain that the word is a program, only code
    /// from its options counts.
    fn arguments(
        &self,
        program: &'static Program,
        name: &'static str,
        from: usize,
        is_certain: bool,
    ) -> Option<Finding> {
        let mut seen = Seen::default();
        let mut at = from;
        while let Some(word) = self.words.get(at) {
            let is_option = !seen.ended && word.starts_with(['-', '+']) && word.len() > 1;
            let may_be_option = word.starts_with(ANY) && !seen.ended && !program.takes_code(&seen);
            let step = if may_be_option && self.is_wary && is_certain && program.is_strict() {
                Step::Found(Finding::Option(at, name))
            } else if word == "--" && !seen.ended {
                seen.ended = program.operands != Operands::Any;
                Step::On(at + 1)
            } else if program.plus && word.starts_with('+') && is_code(word) {
                Step::Found(Finding::Code(at))
            } else if lists(program.command_words, word) && !seen.ended {
                match self.inner(at + 1, None, |word| word.to_owned()) {
                    // Behind the command, further options of this program may follow.
                    Step::Done => Step::On(at + 1),
                    step @ (Step::On(_) | Step::Found(_)) => step,
                }
            } else if is_option && (word.starts_with('-') || program.operands == Operands::Shell) {
                self.option(program, name, &mut seen, at)
            } else {
                self.operand(program, &mut seen, at, is_certain)
            };
            match step {
                Step::On(next) => at = next,
                Step::Found(finding) => return Some(finding),
                Step::Done => return None,
            }
        }
        let has_none = !seen.code && (!seen.flag || seen.stdin);
        let reads = program.reads_code && has_none;
        (is_certain && reads && self.stdin_is_code()).then_some(Finding::Stdin(name))
    }

    fn stdin_is_code(&self) -> bool {
        self.stdin.as_deref().is_some_and(is_code)
    }

    fn option(
        &self,
        program: &'static Program,
        name: &'static str,
        seen: &mut Seen,
        at: usize,
    ) -> Step {
        let Some(word) = self.words.get(at) else { return Step::Done };
        let (stem, value) =
            word.split_once('=').map_or((word.as_str(), None), |(stem, value)| (stem, Some(value)));
        let abbreviates = |known: &str| {
            known == stem || stem.starts_with("--") && stem.len() > 2 && known.starts_with(stem)
        };
        let is_in = |words: &str| words.split_ascii_whitespace().any(abbreviates);
        if is_code(stem) && word.starts_with("--") && program.is_strict() {
            return Step::Found(Finding::Option(at, name));
        }
        let joined = value.or_else(|| self.words.get(at + 1).map(String::as_str));
        if joined.is_some_and(is_deciding) {
            let place = if value.is_some() { at } else { at + 1 };
            return Step::Found(Finding::Code(place));
        }
        if is_in(program.settings) {
            let place = if value.is_some() { at } else { at + 1 };
            return match joined.is_some_and(is_unsafe_setting) {
                true => Step::Found(Finding::Code(place)),
                false => Step::On(place + 1),
            };
        }
        if lists(program.value_words, stem)
            || is_in(program.value_words) && !is_in(program.code_words)
        {
            return Step::On(at + if value.is_some() { 1 } else { 2 });
        }
        if is_in(program.code_words) {
            return self.brought(name, seen, at, value, false);
        }
        if word.starts_with("--") {
            return Step::On(at + 1);
        }
        self.cluster(program, name, seen, at, word)
    }

    /// Scans a cluster of one-letter options.
    fn cluster(
        &self,
        program: &'static Program,
        name: &'static str,
        seen: &mut Seen,
        at: usize,
        word: &str,
    ) -> Step {
        let is_shell = program.operands == Operands::Shell;
        let mut next = at + 1;
        for (place, letter) in word.char_indices().skip(1) {
            let rest = word.get(place + letter.len_utf8()..).unwrap_or_default();
            let value = Some(rest).filter(|rest| !rest.is_empty());
            match letter {
                ANY | TAME if program.is_strict() => {
                    return Step::Found(Finding::Option(at, name));
                }
                'c' if is_shell => seen.flag = true,
                's' if is_shell => seen.stdin = true,
                // Its value follows the whole cluster.
                'o' | 'O' if is_shell => next += 1,
                // `node -pe`: both options refer to the same code.
                'p' if program.code.contains(letter) && rest == "e" => {}
                _ if program.code.contains(letter) => {
                    return self.brought(name, seen, at, value, program.last.contains(letter));
                }
                _ if program.loads.contains(letter) => {
                    let code = seen.code;
                    let step = self.brought(name, seen, at, value, false);
                    seen.code = code;
                    return step;
                }
                _ if program.code_joined.contains(letter) => {
                    return match value.is_some_and(is_code) {
                        true => Step::Found(Finding::Code(at)),
                        false => Step::On(at + 1),
                    };
                }
                _ if program.value.contains(letter) => {
                    if (program.operands, letter) == (Operands::Xargs, 'I') {
                        seen.replaced =
                            value.or_else(|| Some(self.words.get(at + 1)?)).map(str::to_owned);
                    }
                    if program.last.contains(letter) {
                        return Step::Done;
                    }
                    return Step::On(at + if value.is_some() { 1 } else { 2 });
                }
                _ if program.joined.contains(letter) && !is_digit_cluster(letter, rest) => {
                    return Step::On(at + 1);
                }
                _ => {}
            }
        }
        Step::On(next)
    }

    /// Scans the code of an option, joined to it or in the next argument.
    fn brought(
        &self,
        name: &str,
        seen: &mut Seen,
        at: usize,
        value: Option<&str>,
        is_last: bool,
    ) -> Step {
        seen.code = true;
        let (place, code) = match value {
            Some(value) => (at, value),
            None => match self.words.get(at + 1) {
                Some(word) => (at + 1, word.as_str()),
                None => return Step::Done,
            },
        };
        if is_code(code) {
            return Step::Found(Finding::Code(place));
        }
        if name == "env" && self.depth < DEPTH_MAX {
            // The following arguments are appended to the words of the text.
            let rest = self.words.get(place + 1..).unwrap_or_default();
            let words = code.split_ascii_whitespace().map(str::to_owned);
            let split = words.clone().count();
            let words = words.chain(rest.iter().cloned()).collect();
            let (stdin, depth) = (self.stdin.clone(), self.depth + 1);
            let inner = Self { words, stdin, depth, is_wary: self.is_wary };
            let moved =
                |inner: usize| if inner < split { place } else { inner - split + place + 1 };
            return inner.command(0).map_or(Step::Done, |finding| Step::Found(finding.at(moved)));
        }
        if is_last { Step::Done } else { Step::On(place + 1) }
    }

    fn operand(
        &self,
        program: &'static Program,
        seen: &mut Seen,
        at: usize,
        is_certain: bool,
    ) -> Step {
        let Some(word) = self.words.get(at) else { return Step::Done };
        let number = seen.operands;
        seen.operands += 1;
        let code_if = |holds: bool| {
            if holds && is_code(word) { Step::Found(Finding::Code(at)) } else { Step::Done }
        };
        match program.operands {
            Operands::Shell if seen.flag => code_if(true),
            Operands::Shell if seen.stdin => Step::On(self.words.len()),
            Operands::Shell | Operands::Script if seen.code => Step::Done,
            Operands::Shell | Operands::Script if STDIN.contains(&word.as_str()) => {
                // Input is read from there, whatever the operands are.
                Step::On(self.words.len())
            }
            Operands::Shell | Operands::Script => Step::Done,
            Operands::Subcommand(running) if number == 0 => {
                seen.flag = word == running;
                Step::On(at + 1)
            }
            Operands::Subcommand(_) => code_if(seen.flag),
            Operands::Family => {
                let (inner, name) = lookup(&format!("git-{word}")).unwrap_or((&GIT_COMMAND, "git"));
                let found = self.arguments(inner, name, at + 1, is_certain);
                found.map_or(Step::Done, Step::Found)
            }
            _ if !is_certain => Step::Done,
            Operands::PowerShell if !seen.code => Step::Done,
            Operands::PowerShell => match code_if(true) {
                Step::Done => Step::On(at + 1),
                step @ (Step::On(_) | Step::Found(_)) => step,
            },
            Operands::Code => match code_if(!seen.code && number == 0) {
                Step::Done if program.permutes => Step::On(at + 1),
                step @ (Step::On(_) | Step::Found(_) | Step::Done) => step,
            },
            Operands::CodeAfter(skipped) if number >= skipped && is_code(word) => {
                Step::Found(Finding::Code(at))
            }
            Operands::CodeAfter(skipped) => {
                seen.code |= number >= skipped;
                Step::On(at + 1)
            }
            Operands::Any => match lookup(word) {
                Some((inner, name)) => {
                    let found = self.arguments(inner, name, at + 1, false);
                    found.map_or(Step::On(at + 1), Step::Found)
                }
                None => Step::On(at + 1),
            },
            Operands::Command(skipped) if number < skipped => Step::On(at + 1),
            Operands::Command(_) | Operands::Xargs if is_deciding(word) => {
                Step::Found(Finding::Code(at))
            }
            Operands::Command(_) | Operands::Xargs if is_assignment(word) => {
                seen.operands -= 1;
                Step::On(at + 1)
            }
            Operands::Command(_) => self.inner(at, self.stdin.clone(), |word| word.to_owned()),
            Operands::Xargs => self.xargs(seen, at),
        }
    }

    /// Scans the command of `xargs`, including the arguments from its standard input.
    fn xargs(&self, seen: &Seen, at: usize) -> Step {
        let as_it_is = |word: &str| word.to_owned();
        if !self.stdin_is_code() {
            return self.inner(at, None, as_it_is);
        }
        let any = ANY.to_string();
        if let Some(replaced) = seen.replaced.as_deref().filter(|it| !it.is_empty()) {
            return self.inner(at, None, |word| word.replace(replaced, &any));
        }
        let mut words = self.words.clone();
        words.push(any);
        let more = Self { words, stdin: None, depth: self.depth, is_wary: self.is_wary };
        match more.inner(at, None, as_it_is) {
            // Text appended at the end comes from `stdin` of the configuration.
            Step::Found(finding) if finding.place() == Some(self.words.len()) => {
                Step::Found(Finding::Stdin("xargs"))
            }
            step @ (Step::On(_) | Step::Found(_) | Step::Done) => step,
        }
    }

    /// Scans the command of a wrapper.
    fn inner(&self, at: usize, stdin: Option<String>, change: impl Fn(&str) -> String) -> Step {
        if self.depth >= DEPTH_MAX {
            return self.nested(at).map_or(Step::Done, Step::Found);
        }
        let words = self.words.iter().skip(at).map(|word| change(word)).collect();
        let inner = Self { words, stdin, depth: self.depth + 1, is_wary: self.is_wary };
        let found = inner.command(0);
        found.map_or(Step::Done, |finding| Step::Found(finding.at(|inner| inner + at)))
    }
}

impl Program {
    /// Whether an input that can be an option counts as code. For a program that is neither an
    /// interpreter nor a wrapper, options are up to the author of the configuration.
    fn is_strict(&self) -> bool {
        let is_free = match self.operands {
            Operands::Any | Operands::Family => true,
            Operands::Subcommand(word) => word != "eval",
            Operands::Shell
            | Operands::Script
            | Operands::Code
            | Operands::CodeAfter(_)
            | Operands::PowerShell
            | Operands::Command(_)
            | Operands::Xargs => false,
        };
        !is_free || self.reads_code && !self.code.is_empty()
    }

    /// Whether the next operand is code anyway, so that an option there makes no difference.
    const fn takes_code(&self, seen: &Seen) -> bool {
        match self.operands {
            Operands::Shell | Operands::Subcommand(_) => seen.flag,
            Operands::Code => !seen.code && seen.operands == 0,
            Operands::CodeAfter(skipped) => seen.operands >= skipped,
            Operands::PowerShell => seen.code,
            Operands::Script
            | Operands::Command(_)
            | Operands::Xargs
            | Operands::Family
            | Operands::Any => false,
        }
    }
}

impl Finding {
    /// The same finding at another element.
    fn at(self, moved: impl Fn(usize) -> usize) -> Self {
        match self {
            Self::Code(at) => Self::Code(moved(at)),
            Self::Option(at, program) => Self::Option(moved(at), program),
            Self::Program(at) => Self::Program(moved(at)),
            Self::Stdin(program) => Self::Stdin(program),
        }
    }

    const fn place(&self) -> Option<usize> {
        match self {
            Self::Code(at) | Self::Option(at, _) | Self::Program(at) => Some(*at),
            Self::Stdin(_) => None,
        }
    }
}

/// Whether a word is an assignment `NAME=value` before a command.
fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    })
}

/// Whether a word assigns an input to a variable that controls the code of a program.
fn is_deciding(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, value)| controls_code(name) && is_code(value))
}

/// Whether a `KEY=VALUE` of git has an input in the key, or as a value that may be code.
fn is_unsafe_setting(setting: &str) -> bool {
    let (key, value) = setting.split_once('=').unwrap_or((setting, ""));
    let key = key.to_ascii_lowercase();
    let is_safe = SETTINGS.split_ascii_whitespace().any(|known| match known.strip_suffix('.') {
        Some(section) => key.strip_prefix(section).is_some_and(|rest| rest.starts_with('.')),
        None => key == known,
    });
    is_code(&key) || is_code(value) && !is_safe
}

/// Whether a joined value is a number, after which the cluster continues: `-0777ne`, `-l0pe`.
fn is_digit_cluster(letter: char, rest: &str) -> bool {
    matches!(letter, '0' | 'l') && !rest.starts_with(['x', 'X'])
}
