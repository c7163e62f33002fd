//! Listeners, which a reload may open and close while the server runs.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use ceased_core::time::Instant;
use ceased_transports::{Accept, Address, Listener, SocketMode, Transport};
use mio::{Registry, Token};

use super::constants::{ACCEPT_REST, FIRST_CONN, FIRST_LISTENER};
use super::listen_spec::ListenSpec;
use crate::access::{Access, Entry};
use crate::announce::say;
use crate::config::Users;
use crate::http::access::HttpRules;
use crate::http::pages::Serves;
use crate::token_file;

/// Every listener of the loop.
#[derive(Default)]
pub(crate) struct Listeners {
    bound: Vec<BoundListener>,
    /// Whether no peer is accepted for now.
    is_held: bool,
}

struct BoundListener {
    token: Token,
    listener: Listener,
    access: Access,
    http: Option<Arc<HttpRules>>,
    /// When to call `accept` again: epoll is edge-triggered and will not repeat itself.
    again: Option<Instant>,
    /// The requested address: with port 0 where the system chose.
    requested: Address,
    /// Group of the socket file, if it is not the group of this process.
    group: Option<u32>,
    owner: Owner,
    /// Last logged reason why a removed socket file could not be recreated.
    renew_error: Option<String>,
}

/// Creator of a listening socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    Daemon,
    /// The service manager continues to listen after the daemon has closed its copy.
    Manager,
}

/// Result of an attempt to accept a peer.
pub(crate) enum Accepted {
    /// A peer, and the decision of the listener's access rule.
    Peer(Box<dyn Transport>, Entry),
    /// A peer of a listener for HTTP, and the rules of the listener.
    HttpPeer(Box<dyn Transport>, Arc<HttpRules>),
    /// The system has no resources for another peer; accepting pauses.
    Exhausted { error: io::Error, refused: bool },
    /// The listener is unusable.
    Failed { error: io::Error, address: Address },
}

/// A listener as far as it decides which users of this machine get in.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Opening {
    bound: String,
    /// Address of the configuration, with mode and group of a socket file.
    requested: String,
    /// Users, if they are listed.
    users: Option<Users>,
}

impl BoundListener {
    /// Whether it has a socket file that others can remove and the daemon recreates.
    const fn has_file(&self) -> bool {
        matches!((self.owner, &self.requested), (Owner::Daemon, Address::Unix { .. }))
    }

    fn has_lost_file(&self) -> bool {
        self.has_file() && !self.listener.is_in_place()
    }

    /// Whether it is that of `[metrics]`, which a reload leaves alone.
    fn serves_numbers(&self) -> bool {
        self.http.as_ref().is_some_and(|rules| rules.serves == Serves::Numbers)
    }
}

impl Listeners {
    pub(crate) const fn len(&self) -> usize {
        self.bound.len()
    }

    /// Whether callers can connect.
    pub(crate) fn accepts_callers(&self) -> bool {
        self.bound.iter().any(|bound| !bound.serves_numbers())
    }

    /// Adds a bound listener; returns its address, with the port chosen by the system.
    pub(crate) fn add(&mut self, spec: ListenSpec, listener: Listener, owner: Owner) -> Address {
        let ListenSpec { address: requested, group, access, http } = spec;
        let address = listener.address().clone();
        let taken: BTreeSet<Token> = self.bound.iter().map(|bound| bound.token).collect();
        let mut numbers = (FIRST_LISTENER..FIRST_CONN as usize).map(Token);
        // Beyond that many listeners the last ones share a token, at the cost of an extra `accept`.
        let token = numbers.find(|token| !taken.contains(token)).unwrap_or(Token(FIRST_LISTENER));
        let (again, renew_error) = (None, None);
        let bound = BoundListener {
            token,
            listener,
            access,
            http,
            again,
            requested,
            group,
            owner,
            renew_error,
        };
        self.bound.push(bound);
        address
    }

    /// Registers the listeners from `first` on and announces them.
    ///
    /// # Errors
    /// If the poll does not accept one.
    pub(crate) fn register(
        &mut self,
        registry: &Registry,
        first: usize,
        now: Instant,
    ) -> io::Result<()> {
        for bound in self.bound.iter_mut().skip(first) {
            bound.listener.register(registry, bound.token)?;
            // Peers that connected before are not announced by epoll.
            bound.again = Some(now);
            // Only after registering: a reader of this line may send signals at once.
            let address = in_words(bound.listener.address());
            match &bound.http {
                Some(rules) if rules.serves == Serves::Numbers => {
                    say(format_args!("metrics on {address}"));
                }
                Some(_) => say(format_args!("listening on {address} (http)")),
                None => say(format_args!("listening on {address}")),
            }
        }
        Ok(())
    }

    /// Records an event of the poll.
    pub(crate) fn note_event(&mut self, token: Token, now: Instant) {
        if let Some(bound) = self.bound.iter_mut().find(|bound| bound.token == token) {
            bound.again = Some(now);
        }
    }

    /// Lets every listener accept now.
    pub(crate) fn retry_all(&mut self, now: Instant) {
        self.bound.iter_mut().for_each(|bound| bound.again = Some(now));
    }

    /// Lets no listener accept, or every one again: peers wait in the backlogs meanwhile.
    pub(crate) const fn hold(&mut self, is_held: bool) {
        self.is_held = is_held;
    }

    /// Time of the next attempt to accept.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        if self.is_held {
            return None;
        }
        self.bound.iter().filter_map(|bound| bound.again).min()
    }

    /// Whether the kernel names no user of a peer of the listener with this index.
    pub(crate) fn has_strangers(&self, index: usize) -> bool {
        let bound = self.bound.get(index);
        bound.is_some_and(|bound| matches!(bound.listener.address(), Address::Tcp(_)))
    }

    /// Accepts a peer of the listener with this index; `None` if none is waiting.
    pub(crate) fn accept(&mut self, index: usize, now: Instant) -> Option<Accepted> {
        let bound = self.bound.get_mut(index)?;
        if self.is_held || bound.again.is_none_or(|at| at > now) {
            return None;
        }
        match bound.listener.accept() {
            Accept::Peer(transport) => {
                if let Some(rules) = &bound.http {
                    return Some(Accepted::HttpPeer(transport, Arc::clone(rules)));
                }
                let entry = bound.access.decide(transport.peer());
                Some(Accepted::Peer(transport, entry))
            }
            Accept::Drained => {
                bound.again = None;
                None
            }
            Accept::Exhausted { error, refused } => {
                bound.again = Some(now + ACCEPT_REST);
                Some(Accepted::Exhausted { error, refused })
            }
            Accept::Failed(error) => {
                bound.again = None;
                Some(Accepted::Failed { error, address: bound.listener.address().clone() })
            }
        }
    }

    /// The rules of a listener for HTTP that replace these; `None` if no listener has them.
    pub(crate) fn http_rules(&self, of: &Address) -> Option<Arc<HttpRules>> {
        let mut bound = self.bound.iter();
        bound.find(|bound| is_same(&bound.requested, of)).and_then(|bound| bound.http.clone())
    }

    /// Address at which a browser of this machine finds the live view.
    pub(crate) fn view_address(&self) -> Option<SocketAddr> {
        self.bound.iter().find_map(|bound| {
            let Address::Tcp(address) = bound.listener.address() else { return None };
            let mut address = *address;
            if !bound.http.as_ref()?.view {
                return None;
            }
            match address.ip() {
                IpAddr::V4(Ipv4Addr::UNSPECIFIED) => address.set_ip(Ipv4Addr::LOCALHOST.into()),
                IpAddr::V6(Ipv6Addr::UNSPECIFIED) => address.set_ip(Ipv6Addr::LOCALHOST.into()),
                IpAddr::V4(_) | IpAddr::V6(_) => {}
            }
            address.ip().to_canonical().is_loopback().then_some(address)
        })
    }

    /// The listeners as far as they decide which users of this machine get in.
    pub(crate) fn openings(&self) -> BTreeSet<Opening> {
        let opening = |bound: &BoundListener| Opening {
            bound: bound.listener.address().to_string(),
            requested: format!("{:?} {:?}", bound.requested, bound.group),
            users: match &bound.access {
                Access::Users(users) => users.as_deref().cloned(),
                Access::Anonymous | Access::Tokens(_) => None,
            },
        };
        self.bound.iter().map(opening).collect()
    }

    /// Whether a listener accepts this token.
    pub(crate) fn accept_token(&self, token: &token_file::Token) -> bool {
        self.bound.iter().any(|bound| bound.access.still_accepts(token))
    }

    /// Changes the listeners to exactly `wanted`, all or nothing. Returns the index of the first
    /// new one, which is not registered yet.
    ///
    /// # Errors
    /// The address that cannot be listened on, and the cause.
    pub(crate) fn change(
        &mut self,
        registry: &Registry,
        wanted: Vec<ListenSpec>,
    ) -> Result<usize, String> {
        let mut kept: BTreeMap<usize, ListenSpec> = BTreeMap::new();
        let mut added: Vec<(ListenSpec, Listener)> = Vec::new();
        for spec in wanted.into_iter().filter(|spec| spec.address != Address::Stdio) {
            let mut bound = self.bound.iter().enumerate();
            let is_this = |(at, bound): &(usize, &BoundListener)| {
                !kept.contains_key(at) && is_same(&bound.requested, &spec.address)
            };
            if let Some((at, _)) = bound.find(is_this) {
                kept.insert(at, spec);
            } else {
                let listener = Listener::bind_for(&spec.address, spec.group);
                added.push((spec, listener.map_err(|error| error.to_string())?));
            }
        }
        for (at, ListenSpec { address, group, .. }) in &kept {
            let Some(bound) = self.bound.get_mut(*at) else { continue };
            if let (Address::Unix { mode, .. }, Owner::Daemon) = (address, bound.owner) {
                bound.listener.set_file(*mode, *group).map_err(|error| error.to_string())?;
                bound.group = *group;
            }
        }
        self.close_except(registry, &kept.keys().copied().collect());
        // Inherited listeners may remain between them, so look up by address.
        for spec in kept.into_values() {
            let mut bound = self.bound.iter_mut();
            if let Some(bound) = bound.find(|bound| is_same(&bound.requested, &spec.address)) {
                bound.access = spec.access;
                bound.http = spec.http;
            }
        }
        let first = self.bound.len();
        for (spec, listener) in added {
            self.add(spec, listener, Owner::Daemon);
        }
        Ok(first)
    }

    /// Closes every listener except those at these indexes, and inherited ones: peers of those
    /// would wait forever.
    fn close_except(&mut self, registry: &Registry, kept: &BTreeSet<usize>) {
        let mut at = 0;
        self.bound.retain_mut(|bound| {
            let is_wanted = kept.contains(&at) || bound.serves_numbers();
            at += 1;
            let address = bound.listener.address();
            if !is_wanted && bound.owner == Owner::Manager {
                tracing::warn!(%address, "still listening: the service manager owns this socket");
                return true;
            }
            if !is_wanted {
                say(format_args!("no longer listening on {}", in_words(address)));
                // Closing also deregisters it.
                let _ = bound.listener.deregister(registry);
            }
            is_wanted
        });
    }

    /// Closes every listener at which callers connect, for the shutdown.
    pub(crate) fn close_for_callers(&mut self, registry: &Registry) {
        let (kept, mut closed) = self.bound.drain(..).partition(BoundListener::serves_numbers);
        self.bound = kept;
        close(&mut closed, registry);
    }

    /// Closes every listener.
    pub(crate) fn close_all(&mut self, registry: &Registry) {
        close(&mut std::mem::take(&mut self.bound), registry);
    }

    /// Whether there are socket files to check.
    pub(crate) fn has_files(&self) -> bool {
        self.bound.iter().any(BoundListener::has_file)
    }

    /// Whether a socket file was removed: by a cleaner of temporary files, or with the runtime
    /// directory of a user that logged out.
    pub(crate) fn has_lost_file(&self) -> bool {
        self.bound.iter().any(BoundListener::has_lost_file)
    }

    /// Recreates removed socket files. Accept the peers that wait at the old sockets before.
    pub(crate) fn renew_files(&mut self, registry: &Registry, now: Instant) {
        for bound in self.bound.iter_mut().filter(|bound| bound.has_lost_file()) {
            let _ = bound.listener.deregister(registry);
            let renewed = bound.listener.renew(bound.group).map_err(|error| error.to_string());
            let registered = bound.listener.register(registry, bound.token);
            let outcome = renewed.and_then(|()| registered.map_err(|error| error.to_string()));
            bound.again = Some(now);
            let address = bound.listener.address();
            match outcome {
                Ok(()) => {
                    tracing::warn!(%address, "the socket file was removed; created it again");
                    bound.renew_error = None;
                }
                Err(why) if bound.renew_error.as_ref() == Some(&why) => {}
                Err(why) => {
                    tracing::error!(%address, %why, "the socket file was removed and cannot be created again, so no peer can connect; retrying");
                    bound.renew_error = Some(why);
                }
            }
        }
    }
}

fn close(closed: &mut [BoundListener], registry: &Registry) {
    for bound in closed {
        let _ = bound.listener.deregister(registry);
    }
}

/// Whether two addresses are the same place; a mode can be changed in place.
fn is_same(one: &Address, other: &Address) -> bool {
    match (one, other) {
        (Address::Unix { path: one, .. }, Address::Unix { path: other, .. }) => one == other,
        (Address::Tcp(one), Address::Tcp(other)) => one == other,
        (Address::Stdio, Address::Stdio) => true,
        (Address::Unix { .. } | Address::Tcp(_) | Address::Stdio, _) => false,
    }
}

/// An address with the mode of its socket in words.
fn in_words(address: &Address) -> String {
    match address {
        Address::Unix { path, mode } if *mode != SocketMode::OWNER => {
            format!("unix:{} (mode {mode})", path.display())
        }
        Address::Unix { path, .. } => format!("unix:{}", path.display()),
        Address::Tcp(_) | Address::Stdio => address.to_string(),
    }
}
