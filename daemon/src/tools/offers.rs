//! Prompts and resources of an embedding program, served by Rust functions as tools are.

use std::collections::BTreeMap;
use std::sync::Arc;

use ceased_core::event::Outcome;
use ceased_core::identity::Identity;
use ceased_core::json::raw::Json;
use ceased_core::policy::allow::Allow;
use ceased_core::provider::{HostOffer, OfferKind};
use ceased_core::rpc::error::{ErrorObject, code};
use ceased_core::tool::{StopPolicy, Tool};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::tools::call_latency::HandlerRun;
use crate::tools::catalog::{DEFAULT_ABANDON_AFTER, PayloadRun, payload};
use crate::tools::content::{Audience, Content, EmbeddedResource};
use crate::tools::handler::{Job, ToolError, Work, unanswered};

/// A message of a prompt.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PromptMessage {
    /// Its author.
    pub role: Audience,
    /// Its content.
    pub content: Content,
}

/// Result of a `prompts/get`.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct PromptResult {
    /// Description of the prompt with these arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Its messages.
    pub messages: Vec<PromptMessage>,
}

impl PromptResult {
    /// A prompt of one message of the user.
    #[must_use]
    pub fn user(content: Content) -> Self {
        Self::default().and(Audience::User, content)
    }

    /// Appends a message.
    #[must_use]
    pub fn and(mut self, role: Audience, content: Content) -> Self {
        self.messages.push(PromptMessage { role, content });
        self
    }
}

/// Result of a `resources/read`.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct ResourceResult {
    /// The resource, or its parts.
    pub contents: Vec<EmbeddedResource>,
}

impl From<EmbeddedResource> for ResourceResult {
    fn from(content: EmbeddedResource) -> Self {
        Self { contents: vec![content] }
    }
}

/// Request for a resource, as [`Job::arguments`] gives it to a handler.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct ResourceRequest {
    /// Its URI.
    pub uri: String,
    /// Values of the variables of its template, by name.
    #[serde(default)]
    pub variables: BTreeMap<String, String>,
}

/// Request for completions, as [`Job::arguments`] gives it to a handler.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct CompletionRequest {
    /// The argument or variable.
    pub argument: CompletionArgument,
    /// Arguments that are known already.
    #[serde(default)]
    pub context: CompletionContext,
}

/// The argument to complete.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct CompletionArgument {
    /// Its name.
    pub name: String,
    /// Its beginning, as the user has typed it.
    pub value: String,
}

/// Arguments beside the one to complete.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
pub struct CompletionContext {
    /// Their values, by name.
    #[serde(default)]
    pub arguments: BTreeMap<String, String>,
}

/// Result of a `completion/complete`: at most [`Completion::VALUES_MAX`] values are sent.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Completion {
    /// Values, the best first.
    pub values: Vec<String>,
    /// Number of all values, if it is known.
    pub total: Option<u64>,
}

impl Completion {
    /// Maximum number of values in one response, as the protocol has it.
    pub const VALUES_MAX: usize = 100;
}

impl Serialize for Completion {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let shown = &self.values[..self.values.len().min(Self::VALUES_MAX)];
        let count = self.total.unwrap_or(self.values.len() as u64);
        let mut completion = json!({"values": shown, "hasMore": count > shown.len() as u64});
        if let Some(total) = self.total {
            completion["total"] = total.into();
        }
        json!({"completion": completion}).serialize(serializer)
    }
}

/// A function whose result is that of a method.
struct Serving<F>(F);

impl<F, R> Work for Serving<F>
where
    F: Fn(&Job) -> Result<R, ToolError> + Send + Sync + 'static,
    R: Serialize,
{
    fn work(&self, job: &Job) -> Outcome {
        let result = match (self.0)(job) {
            Ok(result) => result,
            Err(ToolError::Failed(message)) => {
                return Outcome::Error(ErrorObject::new(code::INTERNAL_ERROR, message));
            }
            Err(ToolError::Refused(error)) => return Outcome::Error(error),
            Err(error @ (ToolError::Cancelled | ToolError::Rpc(_))) => return unanswered(error),
        };
        match serde_json::to_string(&result) {
            Ok(result) => Outcome::Result(Json::written(result)),
            Err(error) => Outcome::Error(ErrorObject::new(
                code::INTERNAL_ERROR,
                format!("the result is not valid JSON: {error}"),
            )),
        }
    }
}

/// The work behind a method.
fn work<R: Serialize>(
    method: &str,
    allow: &Allow,
    handler: impl Fn(&Job) -> Result<R, ToolError> + Send + Sync + 'static,
) -> Arc<Tool> {
    let run = HandlerRun::new(Arc::new(Serving(handler)));
    Arc::new(Tool {
        allow: allow.clone(),
        payload: payload(PayloadRun::Handler(run), None),
        ..Tool::new(method, StopPolicy::Handler { abandon_after: DEFAULT_ABANDON_AFTER })
    })
}

/// Builds the work behind a method once the identities that may use it are known.
type Build = Box<dyn FnOnce(&Allow) -> Arc<Tool>>;

/// Builder of a prompt or of resources.
///
/// ```
/// use ceased::{Content, HandlerOffer, Job, PromptResult};
/// use serde::Deserialize;
///
/// #[derive(Deserialize)]
/// struct Arguments {
///     language: String,
/// }
///
/// let prompt = HandlerOffer::prompt("review", |job: &Job| {
///     let Arguments { language } = job.arguments()?;
///     Ok(PromptResult::user(Content::text(format!("Review this {language} code."))))
/// })
/// .description("Reviews code")
/// .argument("language", "Its language", true)
/// .build();
/// ```
pub struct HandlerOffer {
    kind: OfferKind,
    id: String,
    listed: Map<String, Value>,
    arguments: Vec<Value>,
    allow: Allow,
    serve: Build,
    complete: Option<Build>,
}

impl HandlerOffer {
    /// A prompt. Its handler gets the arguments of the request, which are texts.
    pub fn prompt(
        name: impl Into<String>,
        handler: impl Fn(&Job) -> Result<PromptResult, ToolError> + Send + Sync + 'static,
    ) -> Self {
        let name = name.into();
        let serve = Box::new(move |allow: &Allow| work("prompts/get", allow, handler));
        Self::new(OfferKind::Prompt, name.clone(), "name", name, serve)
    }

    /// A resource. Its handler gets a [`ResourceRequest`].
    pub fn resource(
        uri: impl Into<String>,
        name: impl Into<String>,
        handler: impl Fn(&Job) -> Result<ResourceResult, ToolError> + Send + Sync + 'static,
    ) -> Self {
        let serve = Box::new(move |allow: &Allow| work("resources/read", allow, handler));
        Self::new(OfferKind::Resource, uri.into(), "uri", name.into(), serve)
    }

    /// Resources whose URIs fit a template: `{name}` in it stands for a text without slashes,
    /// `{+name}` for any text. Its handler gets a [`ResourceRequest`].
    pub fn template(
        template: impl Into<String>,
        name: impl Into<String>,
        handler: impl Fn(&Job) -> Result<ResourceResult, ToolError> + Send + Sync + 'static,
    ) -> Self {
        let serve = Box::new(move |allow: &Allow| work("resources/read", allow, handler));
        Self::new(OfferKind::Template, template.into(), "uriTemplate", name.into(), serve)
    }

    fn new(kind: OfferKind, id: String, member: &str, name: String, serve: Build) -> Self {
        let mut listed = Map::new();
        listed.insert("name".into(), name.into());
        listed.insert(member.into(), id.clone().into());
        let (arguments, allow) = (Vec::new(), Allow::Everyone);
        Self { kind, id, listed, arguments, allow, serve, complete: None }
    }

    fn with(mut self, member: &str, text: impl Into<String>) -> Self {
        self.listed.insert(member.into(), text.into().into());
        self
    }

    /// Sets the display name.
    #[must_use]
    pub fn title(self, title: impl Into<String>) -> Self {
        self.with("title", title)
    }

    /// Sets the description for models.
    #[must_use]
    pub fn description(self, description: impl Into<String>) -> Self {
        self.with("description", description)
    }

    /// Sets the type of a resource, such as `text/plain`.
    #[must_use]
    pub fn mime_type(self, mime_type: impl Into<String>) -> Self {
        self.with("mimeType", mime_type)
    }

    /// Declares an argument of a prompt.
    #[must_use]
    pub fn argument(mut self, name: &str, description: &str, required: bool) -> Self {
        let argument = json!({"name": name, "description": description, "required": required});
        self.arguments.push(argument);
        self
    }

    /// Completes the arguments of a prompt or the variables of a template. The handler gets a
    /// [`CompletionRequest`].
    #[must_use]
    pub fn completion(
        mut self,
        handler: impl Fn(&Job) -> Result<Completion, ToolError> + Send + Sync + 'static,
    ) -> Self {
        self.complete =
            Some(Box::new(move |allow: &Allow| work("completion/complete", allow, handler)));
        self
    }

    /// The identities that may use it; for others it does not exist. Everyone, if not said.
    #[must_use]
    pub fn allow(mut self, identities: impl IntoIterator<Item = Identity>) -> Self {
        self.allow = Allow::only(identities);
        self
    }

    /// Builds the offer.
    #[must_use]
    pub fn build(mut self) -> HostOffer {
        if !self.arguments.is_empty() {
            self.listed.insert("arguments".into(), self.arguments.into());
        }
        HostOffer {
            kind: self.kind,
            id: self.id.into(),
            listed: Value::Object(self.listed).to_string().into(),
            serve: (self.serve)(&self.allow),
            complete: self.complete.map(|complete| complete(&self.allow)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_completions_are_cut_and_say_so() {
        let values = (0..150).map(|n| n.to_string()).collect();
        let text = serde_json::to_value(Completion { values, total: None }).expect("JSON");
        assert_eq!(text["completion"]["values"].as_array().map(Vec::len), Some(100));
        assert_eq!(text["completion"]["hasMore"], true);
        let short = serde_json::to_value(Completion::default()).expect("JSON");
        assert_eq!(short, json!({"completion": {"values": [], "hasMore": false}}));
    }
}
