//! `on_end`: a command after the end of a call.

use std::sync::Arc;

/// Names in braces in an element of the command.
const NAMES: [&str; 7] = ["tool", "server", "outcome", "job", "task", "identity", "duration"];

/// A command that runs after the end of a call, as written: `{tool}` and the other names in braces
/// stand for the facts of the call. Empty: none runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OnEnd(Arc<[String]>);

impl OnEnd {
    /// Reads the elements of a command.
    ///
    /// # Errors
    /// The first element that is wrong, and why.
    pub fn new(elements: &[&str]) -> Result<Self, (usize, String)> {
        for (at, element) in elements.iter().enumerate() {
            if element.contains('\0') {
                return Err((at, "must not contain a NUL byte".into()));
            }
            for (is_fact, part) in parts(element) {
                let name = part.split('}').next().filter(|name| name.len() < part.len());
                if is_fact && !name.is_some_and(|name| NAMES.contains(&name)) {
                    let names = NAMES.join("}, {");
                    return Err((at, format!("in braces it takes {{{names}}}")));
                }
            }
        }
        match elements.first() {
            Some(program) if program.is_empty() || program.contains('{') => {
                Err((0, "the first element names the program".into()))
            }
            Some(_) | None => Ok(Self(elements.iter().map(|text| (*text).to_owned()).collect())),
        }
    }

    /// Whether no command runs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The command line of one call. An argument begins with `-` only if it is written so: names of
    /// tools may be chosen by a server.
    pub(crate) fn fill(&self, fact: impl Fn(&str) -> String) -> Vec<String> {
        let one = |element: &String| {
            let mut text = String::new();
            for (is_fact, part) in parts(element) {
                match part.split_once('}').filter(|_| is_fact) {
                    Some((name, rest)) => {
                        let is_clean = |c: &char| !c.is_control();
                        text.extend(fact(name).chars().filter(is_clean));
                        text.push_str(rest);
                    }
                    None => text.push_str(part),
                }
            }
            match text.strip_prefix('-').filter(|_| !element.starts_with('-')) {
                Some(rest) => format!("_{rest}"),
                None => text,
            }
        };
        self.0.iter().map(one).collect()
    }

    /// The elements as written.
    #[must_use]
    pub fn elements(&self) -> &[String] {
        &self.0
    }
}

/// The parts of an element between its opening braces, and whether each begins with the name of a fact:
/// `${` belongs to a shell.
fn parts(element: &str) -> impl Iterator<Item = (bool, &str)> {
    let mut starts = vec![0];
    let bytes = element.as_bytes();
    let braces = element.match_indices('{').map(|(at, _)| at);
    starts
        .extend(braces.filter(|at| at.checked_sub(1).and_then(|at| bytes.get(at)) != Some(&b'$')));
    let ends: Vec<usize> = starts.iter().skip(1).copied().chain([element.len()]).collect();
    starts.into_iter().zip(ends).enumerate().map(|(at, (start, end))| {
        let start = if at > 0 { start + 1 } else { start };
        (at > 0, element.get(start..end).unwrap_or_default())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_braces_become_facts() {
        let on_end =
            OnEnd::new(&["n", "{tool}: {outcome}!", "-t{tool}", "{server}", "${A:-b} {job}"])
                .unwrap();
        let line = on_end.fill(|name| match name {
            "tool" => "a\n{job}".into(),
            "server" => "--eval".into(),
            _ => "ok".into(),
        });
        assert_eq!(line, ["n", "a{job}: ok!", "-ta{job}", "_-eval", "${A:-b} ok"]);
    }

    #[test]
    fn odd_elements_are_refused() {
        for bad in [&["{tool}"][..], &[""], &["a", "{x}"], &["a", "{tool"], &["a", "b\0"]] {
            assert!(OnEnd::new(bad).is_err(), "{bad:?}");
        }
        assert!(OnEnd::new(&[]).is_ok_and(|none| none.is_empty()));
    }
}
