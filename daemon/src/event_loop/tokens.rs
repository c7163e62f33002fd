//! Tokens of servers by URL. Their sources are asked on threads of their own: they wait for files and
//! for servers elsewhere.

use ceased_core::identity::Identity;
use ceased_core::ids::InstanceId;
use ceased_core::time::Now;

use super::server::Server;
use crate::observability::metrics::TokenStatus;
use crate::remote::{Bearer, Endpoint};
use crate::server_token::TokenAnswer;

/// Sources that are asked at once.
#[cfg(feature = "tls")]
pub(super) const ASKED_MAX: usize = 32;

impl Server {
    /// Asks the source of the token of an instance, unless that is asked already.
    #[cfg(feature = "tls")]
    pub(super) fn ask_for_token(&mut self, now: Now, id: InstanceId) {
        use std::sync::Arc;
        use std::sync::atomic::Ordering;
        use std::thread;

        use super::mailbox::Report;
        use crate::server_token::Lack;

        let Some(entry) = self.remotes.get_mut(id) else { return };
        let bearer = entry.remote.bearer().clone();
        let Some(credentials) = &entry.endpoint.credentials else { return };
        let source = credentials.source(entry.owner.as_ref());
        let Some(refused) = bearer.begin(now.at) else { return };
        let (count, reports) = (Arc::clone(self.remotes.tokens()), self.reports.clone());
        let failed = if count.fetch_add(1, Ordering::Relaxed) >= ASKED_MAX {
            Some(format!("{ASKED_MAX} tokens are being asked for already"))
        } else {
            let (count, asked) = (Arc::clone(&count), bearer.clone());
            let started = thread::Builder::new().name("token".into()).spawn(move || {
                let answer = source.obtain(refused.as_deref());
                count.fetch_sub(1, Ordering::Relaxed);
                reports.send(Report::Token { bearer: asked, answer });
            });
            started.err().map(|why| format!("no thread to ask for a token: {why}"))
        };
        if let Some(why) = failed {
            count.fetch_sub(1, Ordering::Relaxed);
            self.take_token(now, &bearer, Err(Lack { why, needs_login: false }));
        }
    }

    /// No server has a source of tokens.
    #[cfg(not(feature = "tls"))]
    pub(super) fn ask_for_token(&mut self, _: Now, _: InstanceId) {}

    /// The source of a token has answered.
    pub(super) fn take_token(&mut self, now: Now, bearer: &Bearer, answer: TokenAnswer) {
        match &answer {
            // It may want none; where it does, each of its calls fails with the reason.
            Err(lack) if lack.needs_login => {
                tracing::info!(why = lack.why, "a server by URL is asked without a token");
            }
            Err(lack) => tracing::warn!(why = lack.why, "a server by URL has no token"),
            Ok(_) => {}
        }
        bearer.take(answer, now.at);
        for id in self.remotes.with_token(bearer) {
            self.drive_remote(now, id, |remote| remote.take_token(now.at));
        }
    }

    /// The tokens that are in use, for an operator or for the identity that looks.
    pub(super) fn token_status(&self, now: Now, viewer: Option<&Identity>) -> Vec<TokenStatus> {
        let mut told = Vec::new();
        for server in self.engine.upstreams() {
            let Some(endpoint) = Endpoint::of(server) else { continue };
            for (identity, bearer) in endpoint.bearers.all() {
                let is_for = viewer.is_none_or(|viewer| identity.as_ref() == Some(viewer));
                let (has_source, has_token, expires) = bearer.told();
                if !is_for || !has_source {
                    continue;
                }
                let lack = bearer.why();
                let state = match &lack {
                    Some(lack) if lack.needs_login => "needs_login",
                    Some(_) => "failed",
                    None if has_token => "valid",
                    None => "none",
                };
                let left = expires.map(|at| at.since(now.at).as_millis());
                told.push(TokenStatus {
                    server: server.name.to_string(),
                    identity: identity.map(|identity| identity.to_string()),
                    state,
                    expires_in_ms: left.map(|left| u64::try_from(left).unwrap_or(u64::MAX)),
                    why: lack.map(|lack| lack.why),
                });
            }
        }
        told
    }
}
