//! Logins at servers by URL, for peers: the place of a login, and its tokens. A file is written by a
//! thread of its own.

use std::sync::Arc;

use ceased_core::action::{LoginWish, OutputQuery};
use ceased_core::ids::StatusId;
use ceased_core::time::Now;
use serde_json::{Value, json};

use super::server::Server;
use crate::remote::Endpoint;

/// Bytes of a login as a peer gives it; a file has twice as much room.
#[cfg(feature = "tls")]
const LOGIN_BYTES_MAX: usize = 128 * 1024;

/// The answer to a peer whose wish is refused.
fn refused(why: &str) -> Option<Value> {
    Some(json!({ "refused": why }))
}

impl Server {
    /// Answers a peer about its login; `None` if a report will.
    #[cfg(feature = "tls")]
    pub(super) fn take_login_wish(
        &mut self,
        now: Now,
        query: &OutputQuery,
        name: &str,
        wish: &LoginWish,
    ) -> Option<Value> {
        use crate::credentials::login_file::{Login, LoginFile};
        use crate::credentials::source::Credentials;

        let server = self.engine.upstreams().find(|server| *server.name == *name);
        let Some(endpoint) = server.and_then(|server| Endpoint::of(server)) else {
            return refused("there is no such server by URL");
        };
        let Some(Credentials::Logins(place)) = &endpoint.credentials else {
            return refused(
                "the entry of this server has credentials of its own: it needs no login",
            );
        };
        let viewer = &query.viewer;
        let own = (!viewer.sees_all).then(|| viewer.identity.to_string());
        let file = LoginFile::of(&place.state_dir, name, own.as_deref());
        match wish {
            LoginWish::Begin => {
                let mut told = json!(place.target);
                told["for"] = own.map_or_else(|| "all".into(), Value::from);
                Some(told)
            }
            LoginWish::Keep(text) if text.len() > LOGIN_BYTES_MAX => {
                refused(&format!("params.login exceeds the limit of {LOGIN_BYTES_MAX} bytes"))
            }
            LoginWish::Keep(text) => {
                let login: Login = match serde_json::from_str(text) {
                    Ok(login) => login,
                    Err(why) => return refused(&format!("params.login is no login: {why}")),
                };
                match place.permits(&login) {
                    Ok(()) => self.change_login(now, query.read, &endpoint, move || {
                        file.write(&login).map(|()| json!({"kept": true}))
                    }),
                    Err(why) => refused(&why),
                }
            }
            LoginWish::End => {
                let place = place.clone();
                self.change_login(now, query.read, &endpoint, move || {
                    place.end(&file).map(|told| json!(told))
                })
            }
        }
    }

    /// There are no logins.
    #[cfg(not(feature = "tls"))]
    pub(super) fn take_login_wish(
        &mut self,
        _: Now,
        _: &OutputQuery,
        _: &str,
        _: &LoginWish,
    ) -> Option<Value> {
        refused("this program has no logins")
    }

    #[cfg(feature = "tls")]
    fn change_login(
        &mut self,
        _: Now,
        read: StatusId,
        endpoint: &Arc<Endpoint>,
        change: impl FnOnce() -> std::io::Result<Value> + Send + 'static,
    ) -> Option<Value> {
        use std::sync::atomic::Ordering;
        use std::thread;

        use super::mailbox::Report;
        use super::tokens::ASKED_MAX;

        let (count, reports) = (Arc::clone(self.remotes.tokens()), self.reports.clone());
        if count.fetch_add(1, Ordering::Relaxed) >= ASKED_MAX {
            count.fetch_sub(1, Ordering::Relaxed);
            return refused("too many logins change at once: try again");
        }
        let (server, done) = (Arc::clone(endpoint), Arc::clone(&count));
        let started = thread::Builder::new().name("login".into()).spawn(move || {
            let answer = change();
            done.fetch_sub(1, Ordering::Relaxed);
            let answer = answer
                .unwrap_or_else(|why| json!({"refused": format!("cannot change the file: {why}")}));
            reports.send(Report::Login { read, server, answer });
        });
        match started {
            Ok(_) => None,
            Err(why) => {
                count.fetch_sub(1, Ordering::Relaxed);
                refused(&format!("no thread to change the file: {why}"))
            }
        }
    }

    /// The file of a login was changed, or could not be.
    pub(super) fn login_changed(
        &mut self,
        now: Now,
        read: StatusId,
        server: &Arc<Endpoint>,
        answer: &Value,
    ) {
        for (_, bearer) in server.bearers.all() {
            bearer.forget();
            for id in self.remotes.with_token(&bearer) {
                self.drive_remote(now, id, |remote| remote.take_token(now.at));
            }
        }
        self.answer_reader(now, read, Some(answer));
    }
}
