//! Templates with placeholders for arguments: `--package={package}`.

use std::borrow::Cow;
use std::fmt;

/// Text in which `{name}` stands for an argument, and `{{` and `}}` for literal braces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Literal(String),
    Argument(String),
}

impl Template {
    /// Parses a template.
    ///
    /// # Errors
    /// The misplaced brace and the correction.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            let (before, brace) = rest.split_at(at);
            literal.push_str(before);
            if let Some(after) = brace.strip_prefix("{{") {
                literal.push('{');
                rest = after;
            } else if let Some(after) = brace.strip_prefix("}}") {
                literal.push('}');
                rest = after;
            } else if brace.starts_with('}') {
                return Err("unmatched `}`; write `}}` for a literal brace".into());
            } else {
                let inside = brace.get(1..).unwrap_or_default();
                let Some((name, after)) = inside.split_once('}') else {
                    return Err("unclosed `{`; write `{{` for a literal brace".into());
                };
                if name.is_empty() || name.contains('{') {
                    return Err(
                        "`{` is not followed by an argument name; write `{{` for a literal brace"
                            .into(),
                    );
                }
                if !literal.is_empty() {
                    parts.push(Part::Literal(std::mem::take(&mut literal)));
                }
                parts.push(Part::Argument(name.to_owned()));
                rest = after;
            }
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            parts.push(Part::Literal(literal));
        }
        Ok(Self { parts })
    }

    /// The literal text before the first placeholder.
    pub(super) fn beginning(&self) -> &str {
        match self.parts.first() {
            Some(Part::Literal(text)) => text,
            Some(Part::Argument(_)) | None => "",
        }
    }

    /// Names of the placeholders, in order, with repetitions.
    pub fn arguments(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Literal(_) => None,
            Part::Argument(name) => Some(name.as_str()),
        })
    }

    /// Substitutes the values; `None` if an argument has no value.
    ///
    /// # Errors
    /// Those of `value`.
    pub fn fill<'v>(
        &self,
        mut value: impl FnMut(&str) -> Result<Option<Cow<'v, str>>, String>,
    ) -> Result<Option<String>, String> {
        let mut text = String::new();
        for part in &self.parts {
            match part {
                Part::Literal(literal) => text.push_str(literal),
                Part::Argument(name) => match value(name)? {
                    Some(value) => text.push_str(&value),
                    None => return Ok(None),
                },
            }
        }
        Ok(Some(text))
    }
}

impl fmt::Display for Template {
    /// Formats the template as written in a configuration.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in &self.parts {
            match part {
                Part::Literal(text) => {
                    f.write_str(&text.replace('{', "{{").replace('}', "}}"))?;
                }
                Part::Argument(name) => write!(f, "{{{name}}}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(template: &str) -> Result<Option<String>, String> {
        Template::parse(template)?.fill(|name| match name {
            "a" => Ok(Some("A {b} $(x) 'y z'".into())),
            "b" => Ok(Some("".into())),
            "bad" => Err("bad".into()),
            _ => Ok(None),
        })
    }

    #[test]
    fn values_are_inserted_verbatim() {
        for (template, text) in [
            ("", Some("")),
            ("plain", Some("plain")),
            ("{a}", Some("A {b} $(x) 'y z'")),
            ("<{a}{b}>", Some("<A {b} $(x) 'y z'>")),
            ("{{a}}", Some("{a}")),
            ("{{{b}}}", Some("{}")),
            ("{{}}", Some("{}")),
            ("--x={absent}", None),
            ("ü{b}ü", Some("üü")),
        ] {
            assert_eq!(fill(template), Ok(text.map(String::from)), "{template}");
        }
        assert_eq!(fill("x{bad}"), Err("bad".into()));
    }

    #[test]
    fn misplaced_brace_is_reported_with_the_correction() {
        for (template, why) in [
            ("a}", "unmatched `}`; write `}}` for a literal brace"),
            ("{a", "unclosed `{`; write `{{` for a literal brace"),
            ("{}", "`{` is not followed by an argument name; write `{{` for a literal brace"),
            ("{a{b}", "`{` is not followed by an argument name; write `{{` for a literal brace"),
        ] {
            assert_eq!(Template::parse(template), Err(why.into()), "{template}");
        }
    }

    #[test]
    fn template_is_displayed_as_written() {
        for text in ["", "a", "{a}", "x{{y}}{z}{{", "{a}{b}"] {
            let template = Template::parse(text).expect(text);
            assert_eq!(template.to_string(), text);
            assert_eq!(Template::parse(&template.to_string()), Ok(template));
        }
        let template = Template::parse("{b}{a}-{b}").expect("valid");
        assert_eq!(template.arguments().collect::<Vec<_>>(), ["b", "a", "b"]);
    }
}
