//! The arguments of a tool call: their schema, and the command line they make.
//!
//! An argument reaches a program as one argument or part of one, whole: it is never split, and no
//! shell reads it. What it cannot be kept from is *being an option*: with
//! `["grep", "{pattern}"]` the value `--help` is an option to grep. Put `--` before such an
//! element (`["grep", "--", "{pattern}"]`), or write the option and its value as one element
//! (`"--regexp={pattern}"`), or restrict the value with `enum` or a `pattern`.

mod plain;
mod strict;
mod template;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt::{self, Write as _};
use std::path::PathBuf;
use std::sync::OnceLock;

use jsonschema::{PatternOptions, Validator};
use plain::Plain;
use serde_json::Value;
use serde_json::value::RawValue;

pub use template::Template;

use ceased_process::WorkingDir;

/// Characters of a refusal, in all.
const REFUSAL_CHARS_MAX: usize = 512;
/// Offences that a refusal names.
const OFFENCES_MAX: usize = 3;
/// Characters of one offence, so that each of them is seen.
const OFFENCE_CHARS_MAX: usize = REFUSAL_CHARS_MAX / OFFENCES_MAX - 2;

/// Bytes of one argument or environment entry: what Linux takes, `MAX_ARG_STRLEN`, without the NUL.
pub const ELEMENT_BYTES_MAX: usize = 128 * 1024 - 1;
/// Bytes of all arguments and environment entries of one call. Linux takes a quarter of the stack
/// limit, 2 MiB as a rule, and what is inherited of the environment is in it too.
pub const COMMAND_BYTES_MAX: usize = 1024 * 1024;

/// The schema of a tool's arguments, ready to be shown and to be used.
#[derive(Debug, Clone)]
pub struct Arguments {
    schema: Box<RawValue>,
    validator: Validating,
    declared: Vec<String>,
    defaults: BTreeMap<String, Box<RawValue>>,
}

impl PartialEq for Arguments {
    /// Everything else follows from the schema.
    fn eq(&self, other: &Self) -> bool {
        self.schema.get() == other.schema.get()
    }
}

impl Arguments {
    /// The arguments that `schema`, a JSON Schema object, describes.
    ///
    /// # Errors
    /// Why it cannot describe a tool's arguments: not `"type": "object"` at the top, properties
    /// that are no objects (MCP allows no others), a reference to somewhere else, a pattern with
    /// look-around or back-references (they could take forever), a default that the schema itself
    /// refuses, or no valid schema at all.
    pub fn new(schema: &str) -> Result<Self, String> {
        let value = strict::value(schema).map_err(|why| why.replacen("arguments", "schema", 1))?;
        if value.get("type").and_then(Value::as_str) != Some("object") {
            return Err("schema: MCP wants \"type\": \"object\" at the top".into());
        }
        let properties = match value.get("properties") {
            None => &serde_json::Map::new(),
            Some(properties) => {
                properties.as_object().ok_or("schema/properties: this must be an object")?
            }
        };
        if let Some((name, _)) = properties.iter().find(|(_, schema)| !schema.is_object()) {
            return Err(format!("schema/properties/{name}: MCP wants an object here"));
        }
        refuse_remote(&value, "schema")?;
        let declared = properties.keys().cloned().collect();
        let schema = RawValue::from_string(schema.trim().to_owned())
            .map_err(|why| format!("schema: {why}"))?;
        let has_defaults = properties.values().any(|property| property.get("default").is_some());
        let (validator, defaults) = match Plain::new(&value) {
            Some(plain) if !has_defaults => {
                let refusing = OnceLock::new();
                (Validating::Plainly { plain, refusing }, BTreeMap::new())
            }
            plain => {
                let whole = validator(&value)?;
                let defaults = defaults(properties, &whole)?;
                let validating = match plain {
                    Some(plain) => Validating::Plainly { plain, refusing: Ok(whole).into() },
                    None => Validating::Wholly(whole),
                };
                (validating, defaults)
            }
        };
        Ok(Self { schema, validator, declared, defaults })
    }

    /// The schema for `tools/list`, as it was given.
    #[must_use]
    pub fn schema(&self) -> &RawValue {
        &self.schema
    }

    /// The names of the top-level properties, sorted.
    #[must_use]
    pub fn declared(&self) -> &[String] {
        &self.declared
    }

    /// Checks the `arguments` of a call, raw JSON; missing ones are `{}`.
    ///
    /// # Errors
    /// The first three offences, each with the path to it: `arguments/n: 7 is not of type "string"`.
    /// At most 512 characters, whatever was sent.
    pub fn check(&self, arguments: Option<&str>) -> Result<(), String> {
        self.accept(arguments.unwrap_or("{}")).map(drop)
    }

    /// As [`Arguments::check`], and returns the arguments without those that are left out: an
    /// optional one that is `null` where its schema does not allow that is as if it were not there.
    ///
    /// # Errors
    /// As [`Arguments::check`].
    pub fn accept<'a>(&self, arguments: &'a str) -> Result<Cow<'a, str>, String> {
        match &self.validator {
            Validating::Plainly { plain, .. } if plain.holds(arguments) => {
                return Ok(Cow::Borrowed(arguments));
            }
            Validating::Plainly { .. } | Validating::Wholly(_) => {}
        }
        let mut value = strict::value(arguments).map_err(|why| capped(&why))?;
        let refusal = match self.check_whole(&value) {
            Ok(()) => return Ok(Cow::Borrowed(arguments)),
            Err(refusal) => refusal,
        };
        let left_out = self.take_left_out(&mut value)?;
        if left_out.is_empty() {
            return Err(refusal);
        }
        self.check_whole(&value)?;
        let mut members = strict::members(arguments)?;
        members.retain(|name, _| !left_out.contains(name.as_ref()));
        serde_json::to_string(&members).map(Cow::Owned).map_err(|why| format!("arguments: {why}"))
    }

    /// Removes the optional arguments that are `null`, and returns their names.
    fn take_left_out(&self, arguments: &mut Value) -> Result<BTreeSet<String>, String> {
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

    /// Checks arguments by everything the schema may ask for.
    fn check_whole(&self, value: &Value) -> Result<(), String> {
        let validator = match &self.validator {
            Validating::Wholly(validator) => validator,
            Validating::Plainly { refusing, .. } => {
                refusing.get_or_init(|| self.whole()).as_ref().map_err(Clone::clone)?
            }
        };
        if validator.is_valid(value) {
            return Ok(());
        }
        let offences: Vec<String> = validator
            .iter_errors(value)
            .take(OFFENCES_MAX)
            .map(|error| offence("arguments", &error))
            .collect();
        Err(capped(&offences.join("; ")))
    }

    /// Everything the schema asks for.
    fn whole(&self) -> Result<Validator, String> {
        validator(&strict::value(self.schema.get())?)
    }

    /// Whether an input can be one of these texts. True where that cannot be told.
    pub(crate) fn takes_any_text(&self, name: &str, texts: &[&str]) -> bool {
        let Ok(Value::Object(whole)) = strict::value(self.schema.get()) else { return true };
        let Some(Value::Object(property)) = whole.get("properties").and_then(|all| all.get(name))
        else {
            return true;
        };
        // The usual ones need no validator.
        let says_nothing =
            |key: &String| matches!(key.as_str(), "type" | "title" | "description" | "default");
        match property.get("type").and_then(Value::as_str) {
            Some("integer" | "number" | "boolean" | "null") => return false,
            Some("string") | None if property.keys().all(says_nothing) => return true,
            Some(_) | None => {}
        }
        // Alone, so that nothing else that is required or excluded decides.
        let mut alone = serde_json::Map::new();
        alone.insert("type".into(), "object".into());
        alone.insert("properties".into(), serde_json::json!({ name: property }));
        for shared in ["$schema", "$defs", "definitions"] {
            if let Some(value) = whole.get(shared) {
                alone.insert(shared.into(), value.clone());
            }
        }
        let Ok(rules) = validator(&Value::Object(alone)) else { return true };
        texts.iter().any(|text| rules.is_valid(&serde_json::json!({ name: text })))
    }

    /// A question about checked arguments. An absent one is said to be absent.
    ///
    /// # Errors
    /// When the arguments are no object.
    pub fn question(&self, template: &Template, arguments: &str) -> Result<String, String> {
        let values = self.values(arguments)?;
        let text = template
            .fill(|name| Ok(Some(values.plain(name)?.unwrap_or(Cow::Borrowed("(not given)")))))?;
        Ok(text.unwrap_or_default())
    }

    /// The texts of checked arguments, with the defaults of those that are not there.
    fn values<'v>(&'v self, arguments: &'v str) -> Result<Values<'v>, String> {
        let mut values: BTreeMap<Cow<'v, str>, &RawValue> = self
            .defaults
            .iter()
            .map(|(name, value)| (Cow::Borrowed(name.as_str()), &**value))
            .collect();
        values.extend(strict::members(arguments)?);
        Ok(Values(values))
    }
}

/// How arguments are judged.
#[derive(Debug, Clone)]
enum Validating {
    /// By everything the schema asks for.
    Wholly(Validator),
    /// Plainly; by everything the schema asks for only when they are not plainly valid. What that
    /// takes is made when it is needed first: a validator that has read its own rules holds a
    /// megabyte.
    Plainly { plain: Plain, refusing: OnceLock<Result<Validator, String>> },
}

fn validator(schema: &Value) -> Result<Validator, String> {
    jsonschema::options()
        .offline()
        // Linear time, whatever the pattern and the text.
        .with_pattern_options(PatternOptions::regex())
        .build(schema)
        .map_err(|why| offence("schema", &why))
}

/// What to run, with holes for the arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandTemplate {
    /// The program: a bare name to be looked up in `PATH`, or an absolute path. Never an argument.
    pub program: OsString,
    /// What follows it.
    pub elements: Vec<Template>,
    /// Where it runs; None: where the daemon runs.
    pub cwd: Option<CwdTemplate>,
    /// Environment variables it gets besides those it inherits.
    pub env: Vec<(String, Template)>,
    /// What it can read from its standard input; None: nothing.
    pub stdin: Option<Template>,
}

/// A working directory with holes for the arguments, which can only lead below `base`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CwdTemplate {
    /// An absolute path.
    pub base: PathBuf,
    /// What follows it.
    pub rest: Template,
}

impl CwdTemplate {
    /// The directory below which every argument leads: what is written before the first of them;
    /// and how many bytes of `rest` belong to it.
    fn written(&self) -> (usize, PathBuf) {
        match self.rest.beginning().rsplit_once('/') {
            Some((above, _)) if !above.is_empty() => (above.len(), self.base.join(above)),
            Some(_) | None => (0, self.base.clone()),
        }
    }
}

/// What to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Argv {
    /// The program and its arguments; never empty, no NUL byte in it.
    pub argv: Vec<OsString>,
    /// What it can read from its standard input.
    pub stdin: Option<Vec<u8>>,
    /// Where it runs; None: where the daemon runs.
    pub cwd: Option<WorkingDir>,
    /// Environment variables it gets besides those it inherits.
    pub env: Vec<(String, String)>,
}

impl CommandTemplate {
    /// Every template in it.
    pub fn templates(&self) -> impl Iterator<Item = &Template> {
        self.elements
            .iter()
            .chain(self.cwd.as_ref().map(|cwd| &cwd.rest))
            .chain(self.env.iter().map(|(_, template)| template))
            .chain(&self.stdin)
    }

    /// Checks the `arguments` of a call and puts them in.
    ///
    /// A string is put in as it is, a number or boolean as its JSON text, an array or object as
    /// compact JSON. An argument that is absent and has no default, or is null, drops the element,
    /// the variable, the directory or the input that mentions it as a whole.
    ///
    /// # Errors
    /// What [`Arguments::check`] says; and a NUL byte, `..` in a working directory, or more bytes
    /// than the system takes.
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
                "arguments: they make a command of {total} bytes; at most {COMMAND_BYTES_MAX} fit"
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
struct Values<'v>(BTreeMap<Cow<'v, str>, &'v RawValue>);

impl<'v> Values<'v> {
    /// An argument as a command sees it.
    fn plain(&self, name: &str) -> Result<Option<Cow<'v, str>>, String> {
        self.0.get(name).map_or(Ok(None), |raw| strict::plain(raw))
    }

    /// As [`Self::plain`], for a place that ends at a NUL byte.
    fn printable(&self, name: &str) -> Result<Option<Cow<'v, str>>, String> {
        let value = self.plain(name)?;
        if value.as_deref().is_some_and(|text| text.contains('\0')) {
            return Err(capped(&format!(
                "arguments/{name}: it holds a NUL byte, which no command argument, variable or \
                 path can"
            )));
        }
        Ok(value)
    }

    /// The text of a command argument or a variable.
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
        // A leading slash would make the path start anew.
        let below = text.get(above..).unwrap_or_default().trim_start_matches('/');
        let below = if below.is_empty() { "." } else { below };
        Ok(Some(WorkingDir { base, below: Some(below.into()) }))
    }
}

/// The defaults that properties declare, each checked against the schema it stands in.
fn defaults(
    properties: &serde_json::Map<String, Value>,
    validator: &Validator,
) -> Result<BTreeMap<String, Box<RawValue>>, String> {
    let mut defaults = BTreeMap::new();
    for (name, property) in properties {
        let Some(default) = property.get("default") else { continue };
        let alone = Value::Object([(name.clone(), default.clone())].into_iter().collect());
        // A default may lack what others are required for; only its own value is judged.
        let own =
            validator.iter_errors(&alone).find(|error| !error.instance_path().as_str().is_empty());
        if let Some(error) = own {
            return Err(offence("default", &error));
        }
        let raw = serde_json::value::to_raw_value(default).map_err(|why| why.to_string())?;
        defaults.insert(name.clone(), raw);
    }
    Ok(defaults)
}

/// Refuses references that lead out of the schema: nothing is fetched, ever.
fn refuse_remote(value: &Value, path: &str) -> Result<(), String> {
    match value {
        Value::Object(members) => members.iter().try_for_each(|(key, inner)| {
            let path = format!("{path}/{key}");
            match (key.as_str(), inner.as_str()) {
                ("$ref" | "$dynamicRef" | "$recursiveRef", Some(target))
                    if !target.starts_with('#') =>
                {
                    Err(format!(
                        "{path}: {target:?} leads out of the schema; only \"#…\" is followed"
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

/// One offence with its path, short.
fn offence(root: &str, error: &jsonschema::ValidationError<'_>) -> String {
    let mut text = Capped { text: String::new(), left: OFFENCE_CHARS_MAX };
    // The message holds the offending value, which may be megabytes: it is cut while it is written.
    if write!(text, "{root}{}: {error}", error.instance_path()).is_err() {
        text.text.push('…');
    }
    text.text
}

/// `text`, cut to what a refusal may hold.
fn capped(text: &str) -> String {
    let mut out = Capped { text: String::new(), left: REFUSAL_CHARS_MAX - 1 };
    if out.write_str(text).is_err() {
        out.text.push('…');
    }
    out.text
}

/// Takes a number of characters and then fails.
struct Capped {
    text: String,
    left: usize,
}

impl fmt::Write for Capped {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            self.left = self.left.checked_sub(1).ok_or(fmt::Error)?;
            // One line, and nothing that a terminal would act on.
            self.text.push(if c.is_control() { ' ' } else { c });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
