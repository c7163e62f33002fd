//! Targets: the server that a request reaches, by the name or URI in its params, and the params that
//! the server knows.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::ids::ConnId;
use crate::outbox::Outbox;
use crate::tool::{TaskSupport, Tool};
use crate::upstream::list::{LISTS, RESOURCES, SKILLS, SKILLS_EXTENSION, TEMPLATES, declares};
use crate::upstream::manifest::Manifest;
use crate::upstream::rewrite::{elements, member, quoted, text_member, with_member};
use crate::upstream::route::Route;
use crate::upstream::table::{KnownServer, Upstreams};
use crate::upstream::uri;

/// Methods that reach one of several servers, beside `tools/call` and subscriptions.
pub(crate) const TARGETED: [&str; 5] = [
    "prompts/get",
    "resources/read",
    "completion/complete",
    "skills/get",
    "resources/directory/read",
];

/// The server of a request.
pub(crate) struct RequestTarget<'a> {
    pub(crate) server: &'a KnownServer,
    /// The URI that the server knows, where clients know another.
    pub(crate) own: Option<Box<str>>,
}

impl Upstreams {
    /// The server of a request, by the name or URI in its params.
    pub(crate) fn target_of(
        &self,
        outbox: &Outbox,
        method: &str,
        params: &str,
        conn: ConnId,
    ) -> Option<RequestTarget<'_>> {
        let servers = || self.seen_servers(outbox, conn);
        let plain = |server| RequestTarget { server, own: None };
        if self.shown_through(outbox, conn).is_some() {
            return servers().next().map(plain);
        }
        let (named, uri) = names(method, params);
        if let Some(target) = uri.as_deref().and_then(|uri| self.owner_of(outbox, uri, conn)) {
            return Some(target);
        }
        let prompt =
            |server: &&KnownServer| named.as_deref().is_some_and(|it| has_prompt(server, it));
        if let Some(server) = servers().find(prompt) {
            return Some(plain(server));
        }
        // A server may know more than it lists.
        let capability = match method {
            "prompts/get" => "prompts",
            "completion/complete" => "completions",
            "skills/get" => SKILLS_EXTENSION,
            _ if method.starts_with("resources/") => "resources",
            // UPS-18: a method that is not known here reaches the only server that there is.
            _ => {
                let mut all = servers();
                return all.next().filter(|_| all.next().is_none()).map(plain);
            }
        };
        let is_able = |server: &&KnownServer| {
            let said = server.manifest.as_ref().map(Manifest::capabilities);
            said.is_none_or(|said| declares(said, capability))
        };
        servers().find(is_able).map(plain)
    }

    /// The server that lists a URI, itself or as one of a template or a skill, or that a wrapped URI
    /// names.
    fn owner_of(&self, outbox: &Outbox, shown: &str, conn: ConnId) -> Option<RequestTarget<'_>> {
        let servers = || self.seen_servers(outbox, conn);
        let lists = |server: &&KnownServer| {
            server.manifest.as_ref().is_some_and(|of| uris_of(of).any(|uri| *uri == *shown))
        };
        if let Some(server) = servers().find(lists) {
            return Some(RequestTarget { server, own: None });
        }
        if let Some((name, own)) = uri::unwrapped(shown) {
            let is_its = |server: &&KnownServer| {
                *server.server.name == *name && (uri::is_ours(shown) || knows(server, &own))
            };
            if let Some(server) = servers().find(is_its) {
                return Some(RequestTarget { server, own: Some(own.into()) });
            }
        }
        // A template whose beginning matches says more than the order of the servers.
        let server = servers().find(|server| knows(server, shown))?;
        Some(RequestTarget { server, own: None })
    }
}

impl RequestTarget<'_> {
    /// The request as the server gets it: its pseudo-tool, and its params with the server's own
    /// names.
    pub(crate) fn request(&self, is_plain: bool, method: &str, params: &str) -> (Tool, String) {
        let server = self.server;
        let short = |name: &str| {
            let prefix = if is_plain { "" } else { &*server.server.prefix };
            String::from(name.strip_prefix(prefix).unwrap_or(name))
        };
        let mut passed = String::from(params);
        let own = self.own.as_deref();
        if let Some(own) = own.filter(|_| member(params, "uri").is_some()) {
            passed = with_member(&passed, "uri", &quoted(own));
        }
        if let Some(of) = member(params, "ref").filter(|_| method == "completion/complete") {
            let mut changed = String::from(of);
            if let Some(name) = text_member(of, "name") {
                changed = with_member(&changed, "name", &quoted(&short(&name)));
            }
            if let Some(own) = own.filter(|_| member(of, "uri").is_some()) {
                changed = with_member(&changed, "uri", &quoted(own));
            }
            if changed != of {
                passed = with_member(&passed, "ref", &changed);
            }
        }
        let name = match (method, own) {
            ("prompts/get", _) => short(&text_member(params, "name").unwrap_or_default()),
            (_, Some(_)) => text_member(params, "uri").map(String::from).unwrap_or_default(),
            (_, None) => String::new(),
        };
        (self.tool(method, &name), passed)
    }

    /// The pseudo-tool of a request about this name.
    pub(crate) fn tool(&self, method: &str, name: &str) -> Tool {
        let mut tool = self.server.relayed(method, method, name, TaskSupport::Forbidden);
        if let Some(route) = &tool.route
            && self.own.is_some()
        {
            tool.route = Some(Arc::new(Route { own: self.own.clone(), ..Route::clone(route) }));
        }
        tool
    }
}

/// A result of `resources/read` with the URI that the client knows (UPS-18).
pub(crate) fn with_shown_uri<'a>(result: &'a str, route: &Route) -> Cow<'a, str> {
    let Some(contents) = member(result, "contents").filter(|it| it.starts_with('[')) else {
        return Cow::Borrowed(result);
    };
    let shown = |content: &str| match text_member(content, "uri").as_deref() == route.own.as_deref()
    {
        true => with_member(content, "uri", &quoted(&route.name)),
        false => content.into(),
    };
    let contents: Vec<String> = elements(contents).into_iter().map(shown).collect();
    Cow::Owned(with_member(result, "contents", &alloc::format!("[{}]", contents.join(","))))
}

/// The name and the URI in the params of a request.
fn names(method: &str, params: &str) -> (Option<Box<str>>, Option<Box<str>>) {
    let of = || member(params, "ref").filter(|_| method == "completion/complete");
    let named = match method {
        "prompts/get" => text_member(params, "name"),
        _ => of().and_then(|of| text_member(of, "name")),
    };
    let uri = text_member(params, "uri").or_else(|| of().and_then(|of| text_member(of, "uri")));
    (named, uri)
}

fn has_prompt(server: &KnownServer, name: &str) -> bool {
    let Some(short) = name.strip_prefix(&*server.server.prefix) else { return false };
    let mut all = server.manifest.iter().flat_map(|manifest| &manifest.prompts);
    all.any(|prompt| text_member(prompt, "name").as_deref() == Some(short))
}

/// The URIs that a server lists: of resources, of templates, of skills and their files.
pub(crate) fn uris_of(manifest: &Manifest) -> impl Iterator<Item = Box<str>> {
    let listed = [RESOURCES, TEMPLATES, SKILLS].into_iter().flat_map(|at| {
        let list = &LISTS[at];
        (list.read)(manifest).iter().filter_map(|element| text_member(element, list.key))
    });
    let files = manifest.skills.iter().flat_map(|skill| {
        let files = member(skill, "resources").map(elements).unwrap_or_default();
        files.into_iter().filter_map(|file| text_member(file, "uri"))
    });
    listed.chain(files)
}

/// Whether a server lists a URI, has a template that begins as the URI, or a skill with it.
fn knows(server: &KnownServer, uri: &str) -> bool {
    let Some(manifest) = &server.manifest else { return false };
    let begins = |known: &str, at: char| {
        let fixed = known.split(at).next().unwrap_or_default();
        !fixed.is_empty() && uri.starts_with(fixed)
    };
    let of_template = |template: &str| {
        text_member(template, "uriTemplate").is_some_and(|template| begins(&template, '{'))
    };
    let of_skill = |skill: &str| {
        let base = text_member(skill, "uri").unwrap_or_default();
        let folder = base.rsplit_once('/').map_or(&*base, |(folder, _)| folder);
        // The folder is more than the scheme.
        folder.trim_end_matches('/').contains("://") && uri.starts_with(folder)
    };
    uris_of(manifest).any(|listed| *listed == *uri)
        || manifest.templates.iter().any(|it| of_template(it))
        || manifest.skills.iter().any(|it| of_skill(it))
}
