//! The arguments of a tool call: their schema, and their substitution into a command line.
//!
//! An argument reaches a program whole, as one element of the command line or part of one: it is
//! never split, and no shell parses it. It can still *be an option*: with `["grep", "{pattern}"]`
//! the value `--help` is an option of grep. Put `--` before such an element (`["grep", "--",
//! "{pattern}"]`), or write the option and its value as one element (`"--regexp={pattern}"`), or
//! restrict the value with `enum` or a `pattern`.

#[cfg(feature = "schema")]
mod general;
mod plain;
mod schema_error;
mod strict;
mod template;
mod violation;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::PathBuf;

#[cfg(feature = "schema")]
use general::General;
use plain::Plain;
use serde_json::Value;
use serde_json::value::RawValue;

pub use schema_error::SchemaError;
pub use template::Template;
use violation::{VIOLATIONS_MAX, Violation, capped};

use ceased_process::WorkingDir;

/// Maximum bytes of one argument or environment entry: `MAX_ARG_STRLEN` of Linux without the NUL.
pub const ELEMENT_BYTES_MAX: usize = 128 * 1024 - 1;
/// Maximum bytes of all arguments and environment entries of one call. Linux allows a quarter of
/// the stack limit, usually 2 MiB, which includes the inherited environment.
pub const COMMAND_BYTES_MAX: usize = 1024 * 1024;

/// A compiled schema of a tool's arguments.
#[derive(Debug, Clone)]
pub struct Arguments {
    schema: Box<RawValue>,
    validation: Validation,
    declared: Vec<String>,
    /// Properties that are integers, and written as digits.
    integers: BTreeSet<String>,
    defaults: BTreeMap<String, Box<RawValue>>,
}

impl PartialEq for Arguments {
    /// The other fields are derived from the schema.
    fn eq(&self, other: &Self) -> bool {
        self.schema.get() == other.schema.get()
    }
}

impl Arguments {
    /// Compiles `schema`, a JSON Schema object.
    ///
    /// # Errors
    /// [`SchemaError::Invalid`] if it cannot describe a tool's arguments: the top level is not
    /// `"type": "object"`, a property is not an object (MCP allows no others), a reference leaves
    /// the schema, a pattern uses look-around or back-references (which need exponential time), a
    /// default violates the schema, or the schema is invalid.
    /// [`SchemaError::Unsupported`] if only the feature `schema` can check it, and it is off.
    pub fn new(schema: &str) -> Result<Self, SchemaError> {
        let value = strict::value(schema).map_err(|why| why.replacen("arguments", "schema", 1))?;
        if value.get("type").and_then(Value::as_str) != Some("object") {
            return Err("schema: MCP requires \"type\": \"object\" at the top level".into());
        }
        let properties = match value.get("properties") {
            None => &serde_json::Map::new(),
            Some(properties) => {
                properties.as_object().ok_or("schema/properties: must be an object")?
            }
        };
        if let Some((name, _)) = properties.iter().find(|(_, schema)| !schema.is_object()) {
            return Err(format!("schema/properties/{name}: MCP requires an object").into());
        }
        refuse_remote(&value, "schema")?;
        let declared = properties.keys().cloned().collect();
        let is_integer = |schema: &Value| schema.get("type").is_some_and(strict::is_integer);
        let integers = properties.iter().filter(|(_, schema)| is_integer(schema));
        let integers = integers.map(|(name, _)| name.clone()).collect();
        let schema = RawValue::from_string(schema.trim().to_owned())
            .map_err(|why| format!("schema: {why}"))?;
        let validation = Validation::of(&value)?;
        let defaults = defaults(properties, &validation)?;
        Ok(Self { schema, validation, declared, integers, defaults })
    }

    /// The schema for `tools/list`, verbatim.
    #[must_use]
    pub fn schema(&self) -> &RawValue {
        &self.schema
    }

    /// The names of the top-level properties, sorted.
    #[must_use]
    pub fn declared(&self) -> &[String] {
        &self.declared
    }

    /// Checks the `arguments` of a call, raw JSON; `None` means `{}`.
    ///
    /// # Errors
    /// The first three violations, each with its path: `arguments/n: 7 is not of type "string"`. At
    /// most 512 characters, whatever the input.
    pub fn check(&self, arguments: Option<&str>) -> Result<(), String> {
        self.accept(arguments.unwrap_or("{}")).map(drop)
    }

    /// As [`Arguments::check`], and returns the arguments without the omitted ones: an optional
    /// argument that is `null` although its schema does not allow that counts as omitted.
    ///
    /// # Errors
    /// As [`Arguments::check`].
    pub fn accept<'a>(&self, arguments: &'a str) -> Result<Cow<'a, str>, String> {
        if self.validation.holds(arguments) {
            return Ok(Cow::Borrowed(arguments));
        }
        let mut value = strict::value(arguments).map_err(|why| capped(&why))?;
        let refusal = match self.check_whole(&value) {
            Ok(()) => return Ok(Cow::Borrowed(arguments)),
            Err(refusal) => refusal,
        };
        let left_out = self.remove_omitted(&mut value)?;
        if left_out.is_empty() {
            return Err(refusal);
        }
        self.check_whole(&value)?;
        let mut members = strict::members(arguments)?;
        members.retain(|name, _| !left_out.contains(name.as_ref()));
        serde_json::to_string(&members).map(Cow::Owned).map_err(|why| format!("arguments: {why}"))
    }

    /// Removes the optional arguments that are `null`, and returns their names.
    fn remove_omitted(&self, arguments: &mut Value) -> Result<BTreeSet<String>, String> {
        let schema = strict::value(self.schema.get())?;
        let required = schema.get("required").and_then(Value::as_array);
        let is_required =
            |name: &str| required.is_some_and(|all| all.iter().any(|one| one == name));
        let mut left_out = BTreeSet::new();
        if let Value::Object(members) = arguments {
            members.retain(|name, value| {
                let is_optional = self.declared.contains(name) && !is_required(name);
                let stays = !value.is_null() || !is_optional;
                if !stays {
                    left_out.insert(name.clone());
                }
                stays
            });
        }
        Ok(left_out)
    }

    /// Checks arguments, and words the first violations.
    fn check_whole(&self, value: &Value) -> Result<(), String> {
        let offences = self.validation.violations(value, VIOLATIONS_MAX);
        if offences.is_empty() {
            return Ok(());
        }
        let texts: Vec<String> =
            offences.iter().map(|offence| offence.under("arguments")).collect();
        Err(capped(&texts.join("; ")))
    }

    /// Whether an input accepts one of these texts. True if that cannot be determined.
    pub(crate) fn takes_any_text(&self, name: &str, texts: &[&str]) -> bool {
        let Ok(Value::Object(whole)) = strict::value(self.schema.get()) else { return true };
        let Some(Value::Object(property)) = whole.get("properties").and_then(|all| all.get(name))
        else {
            return true;
        };
        // Common schemas need no validator.
        let says_nothing =
            |key: &String| matches!(key.as_str(), "type" | "title" | "description" | "default");
        match property.get("type").and_then(Value::as_str) {
            Some("integer" | "number" | "boolean" | "null") => return false,
            Some("string") | None if property.keys().all(says_nothing) => return true,
            Some(_) | None => {}
        }
        // Check the property alone: other required properties must not decide the result.
        let mut alone = serde_json::Map::new();
        alone.insert("type".into(), "object".into());
        alone.insert("properties".into(), serde_json::json!({ name: property }));
        for shared in ["$schema", "$defs", "definitions"] {
            if let Some(value) = whole.get(shared) {
                alone.insert(shared.into(), value.clone());
            }
        }
        let Ok(rules) = Validation::of(&Value::Object(alone)) else { return true };
        let takes = |text| rules.violations(&serde_json::json!({ name: text }), 1).is_empty();
        texts.iter().any(takes)
    }

    /// Renders a question about checked arguments. A missing argument is shown as "(not given)".
    ///
    /// # Errors
    /// If the arguments are not an object.
    pub fn question(&self, template: &Template, arguments: &str) -> Result<String, String> {
        let values = self.values(arguments)?;
        let text = template
            .fill(|name| Ok(Some(values.plain(name)?.unwrap_or(Cow::Borrowed("(not given)")))))?;
        Ok(text.unwrap_or_default())
    }

    /// The checked arguments, with the defaults of missing ones.
    fn values<'v>(&'v self, arguments: &'v str) -> Result<Values<'v>, String> {
        let mut values: BTreeMap<Cow<'v, str>, &RawValue> = self
            .defaults
            .iter()
            .map(|(name, value)| (Cow::Borrowed(name.as_str()), &**value))
            .collect();
        values.extend(strict::members(arguments)?);
        Ok(Values { values, integers: &self.integers })
    }
}

/// Rules of a schema.
#[derive(Debug, Clone)]
enum Validation {
    /// Those of a plain schema.
    Plain(Plain),
    /// Those of any other schema. A validator takes a megabyte.
    #[cfg(feature = "schema")]
    General(General),
}

impl Validation {
    /// Compiles a schema.
    fn of(schema: &Value) -> Result<Self, SchemaError> {
        match Plain::new(schema) {
            Some(plain) => Ok(Self::Plain(plain)),
            #[cfg(feature = "schema")]
            None => General::new(schema).map(Self::General),
            #[cfg(not(feature = "schema"))]
            None => Err(SchemaError::Unsupported),
        }
    }

    /// True if arguments are valid; false is inconclusive.
    fn holds(&self, arguments: &str) -> bool {
        match self {
            Self::Plain(plain) => plain.holds(arguments),
            #[cfg(feature = "schema")]
            Self::General(_) => false,
        }
    }

    /// The first violations of a value, at most this many.
    fn violations(&self, value: &Value, max: usize) -> Vec<Violation> {
        match self {
            Self::Plain(plain) => plain.violations(value, max),
            #[cfg(feature = "schema")]
            Self::General(general) => general.violations(value, max),
        }
    }
}

/// A command with placeholders for arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandTemplate {
    /// The program: a bare name to look up in `PATH`, or an absolute path. Never an argument.
    pub program: OsString,
    /// Elements after the program.
    pub elements: Vec<Template>,
    /// Working directory; `None` for the daemon's.
    pub cwd: Option<CwdTemplate>,
    /// Environment variables added to the inherited ones.
    pub env: Vec<(String, Template)>,
    /// Standard input; `None` for an empty one.
    pub stdin: Option<Template>,
}

/// A working directory with placeholders for arguments, which cannot lead out of `base`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CwdTemplate {
    /// An absolute path.
    pub base: PathBuf,
    /// Path below `base`.
    pub rest: Template,
}

impl CwdTemplate {
    /// The literal directory before the first placeholder, which arguments cannot leave; and how
    /// many bytes of `rest` belong to it.
    fn written(&self) -> (usize, PathBuf) {
        match self.rest.beginning().rsplit_once('/') {
            Some((above, _)) if !above.is_empty() => (above.len(), self.base.join(above)),
            Some(_) | None => (0, self.base.clone()),
        }
    }
}

/// A command ready to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Argv {
    /// The program and its arguments; never empty, without NUL bytes.
    pub argv: Vec<OsString>,
    /// Standard input.
    pub stdin: Option<Vec<u8>>,
    /// Working directory; `None` for the daemon's.
    pub cwd: Option<WorkingDir>,
    /// Environment variables added to the inherited ones.
    pub env: Vec<(String, String)>,
}

impl CommandTemplate {
    /// All templates of the command.
    pub fn templates(&self) -> impl Iterator<Item = &Template> {
        self.elements
            .iter()
            .chain(self.cwd.as_ref().map(|cwd| &cwd.rest))
            .chain(self.env.iter().map(|(_, template)| template))
            .chain(&self.stdin)
    }

    /// Checks the `arguments` of a call and substitutes them.
    ///
    /// A string is inserted verbatim, a number or boolean as its JSON text, an array or object as
    /// compact JSON. If a placeholder's argument is missing without a default, or null, the whole
    /// element, variable, directory or input that mentions it is dropped.
    ///
    /// # Errors
    /// Those of [`Arguments::check`]; and a NUL byte, `..` in a working directory, or more bytes
    /// than the system accepts.
    pub fn fill(&self, rules: &Arguments, arguments: Option<&str>) -> Result<Argv, String> {
        let arguments = rules.accept(arguments.unwrap_or("{}"))?;
        let values = rules.values(&arguments)?;
        let mut total = self.program.len() + 1;
        let mut argv = vec![self.program.clone()];
        for element in &self.elements {
            if let Some(text) = values.element(element, "a command argument")? {
                total += text.len() + 1;
                argv.push(text.into());
            }
        }
        let mut env = Vec::new();
        for (name, template) in &self.env {
            if let Some(text) = values.element(template, &format!("the variable {name}"))? {
                total += name.len() + text.len() + 2;
                env.push((name.clone(), text));
            }
        }
        if total > COMMAND_BYTES_MAX {
            return Err(format!(
                "arguments: the command has {total} bytes; the limit is {COMMAND_BYTES_MAX}"
            ));
        }
        let cwd = match &self.cwd {
            None => None,
            Some(cwd) => values.directory(cwd)?,
        };
        let stdin = match &self.stdin {
            None => None,
            Some(template) => template.fill(|name| values.plain(name))?.map(String::into_bytes),
        };
        Ok(Argv { argv, stdin, cwd, env })
    }
}

/// Arguments by name.
struct Values<'v> {
    values: BTreeMap<Cow<'v, str>, &'v RawValue>,
    integers: &'v BTreeSet<String>,
}

impl<'v> Values<'v> {
    /// Text of an argument in a command.
    fn plain(&self, name: &str) -> Result<Option<Cow<'v, str>>, String> {
        match self.values.get(name) {
            None => Ok(None),
            Some(raw) if self.integers.contains(name) => strict::integer(name, raw),
            Some(raw) => strict::plain(raw),
        }
    }

    /// As [`Self::plain`], for a text that must not contain a NUL byte.
    fn printable(&self, name: &str) -> Result<Option<Cow<'v, str>>, String> {
        let value = self.plain(name)?;
        if value.as_deref().is_some_and(|text| text.contains('\0')) {
            return Err(capped(&format!(
                "arguments/{name}: contains a NUL byte, which a command argument, variable or \
                 path cannot"
            )));
        }
        Ok(value)
    }

    /// Text of a command element or variable.
    fn element(&self, template: &Template, noun: &str) -> Result<Option<String>, String> {
        let text = template.fill(|name| self.printable(name))?;
        match text.as_deref().map_or(0, str::len) {
            fits if fits <= ELEMENT_BYTES_MAX => Ok(text),
            long => Err(capped(&format!(
                "arguments: `{template}` makes {noun} of {long} bytes; the system takes at most \
                 {ELEMENT_BYTES_MAX} (a tool that reads its standard input takes any number)"
            ))),
        }
    }

    /// The working directory.
    fn directory(&self, cwd: &CwdTemplate) -> Result<Option<WorkingDir>, String> {
        let Some(text) = cwd.rest.fill(|name| self.printable(name))? else { return Ok(None) };
        if cwd.rest.arguments().next().is_none() {
            return Ok(Some(cwd.base.join(text).into()));
        }
        let (above, base) = cwd.written();
        if text.split('/').any(|part| part == "..") {
            return Err(capped(&format!(
                "arguments: `..` in the working directory, which must stay below {}",
                base.display()
            )));
        }
        // A leading slash would make the path absolute.
        let below = text.get(above..).unwrap_or_default().trim_start_matches('/');
        let below = if below.is_empty() { "." } else { below };
        Ok(Some(WorkingDir { base, below: Some(below.into()) }))
    }
}

/// Defaults declared by properties, each checked against its own schema.
fn defaults(
    properties: &serde_json::Map<String, Value>,
    validation: &Validation,
) -> Result<BTreeMap<String, Box<RawValue>>, String> {
    let mut defaults = BTreeMap::new();
    for (name, property) in properties {
        let Some(default) = property.get("default") else { continue };
        let alone = Value::Object([(name.clone(), default.clone())].into_iter().collect());
        // Only the value of the default is checked, not the rules between properties.
        let found = validation.violations(&alone, usize::MAX);
        if let Some(offence) = found.iter().find(|offence| !offence.path.is_empty()) {
            return Err(offence.under("default"));
        }
        let raw = serde_json::value::to_raw_value(default).map_err(|why| why.to_string())?;
        defaults.insert(name.clone(), raw);
    }
    Ok(defaults)
}

/// Rejects references that leave the schema: no document is ever fetched.
fn refuse_remote(value: &Value, path: &str) -> Result<(), String> {
    match value {
        Value::Object(members) => members.iter().try_for_each(|(key, inner)| {
            let path = format!("{path}/{key}");
            match (key.as_str(), inner.as_str()) {
                ("$ref" | "$dynamicRef" | "$recursiveRef", Some(target))
                    if !target.starts_with('#') =>
                {
                    Err(format!(
                        "{path}: {target:?} leaves the schema; only references within it (\"#…\") are allowed"
                    ))
                }
                _ => refuse_remote(inner, &path),
            }
        }),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .try_for_each(|(n, item)| refuse_remote(item, &format!("{path}/{n}"))),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests;
