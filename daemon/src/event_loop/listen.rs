//! Listening: opens, changes and renews listeners, and accepts their peers.

use std::io;

use ceased_core::identity::Identity;
use ceased_core::time::Now;
use ceased_transports::{Address, ListenError, Listener};

use super::server::Server;
use super::state::constants::ACCEPTS_MAX;
use super::state::listen_spec::ListenSpec;
use super::state::listeners::{Accepted, Owner};
use super::state::party::Party;
use super::state::record_limiter::RecordKind;

impl Server {
    /// Listens on `address`; returns the bound address, with the port chosen by the system.
    ///
    /// Peers on a Unix socket have the user reported by the kernel (TSK-39); peers on TCP are
    /// anonymous (TSK-40).
    ///
    /// # Errors
    /// [`ListenError`].
    pub fn listen(&mut self, address: &Address) -> Result<Address, ListenError> {
        self.listen_for(ListenSpec::open(address.clone()))
    }

    /// As [`Server::listen`], with an access rule.
    pub(crate) fn listen_for(&mut self, spec: ListenSpec) -> Result<Address, ListenError> {
        let listener = Listener::bind_for(&spec.address, spec.group)?;
        Ok(self.listeners.add(spec, listener, Owner::Daemon))
    }

    /// Accepts peers of a socket inherited from the service manager for this address.
    pub(crate) fn listen_on(&mut self, spec: ListenSpec, listener: Listener) {
        self.listeners.add(spec, listener, Owner::Manager);
    }

    /// Registers the listeners from `first` on and announces them.
    pub(super) fn register_listeners(&mut self, first: usize) -> io::Result<()> {
        self.listeners.register(self.poll.registry(), first, self.clock.now().at)
    }

    /// Changes the listeners to exactly `wanted`; all or nothing. Peers stay, whatever their
    /// listener, unless their token was revoked or was of a link of the live view.
    ///
    /// # Errors
    /// The address that cannot be listened on, and the cause.
    pub(super) fn change_listeners(
        &mut self,
        now: Now,
        wanted: Vec<ListenSpec>,
    ) -> Result<(), String> {
        let before = self.listeners.openings();
        let first = self.listeners.change(self.poll.registry(), wanted)?;
        self.drop_revoked(now);
        // A user may be refused now, and another one may listen on a port that was closed.
        if !before.is_subset(&self.listeners.openings()) {
            self.drop_links(now);
        }
        let listeners = &self.listeners;
        let retired = self.http.change_rules(|rules| listeners.http_rules(&rules.address));
        for conn in retired {
            self.note_http_output(now, conn);
        }
        self.register_listeners(first).map_err(|error| error.to_string())
    }

    /// Accepts peers waiting at the listeners.
    pub(super) fn take_peers(&mut self, now: Now) {
        for index in 0..self.listeners.len() {
            for count in 0..ACCEPTS_MAX {
                // Strangers are accepted as fast as they are read, one of each listener at least.
                let is_full = self.connections.reads().is_full_of_strangers();
                if count > 0 && is_full && self.listeners.has_strangers(index) {
                    break;
                }
                let Some(accepted) = self.listeners.accept(index, now.at) else { break };
                match accepted {
                    Accepted::Peer(transport, entry) => {
                        if let Err(error) = self.let_in(now, transport, entry) {
                            tracing::warn!(%error, "cannot register a peer with epoll; closing it");
                        }
                    }
                    Accepted::HttpPeer(transport, rules) => {
                        if let Err(error) = self.let_in_http(now, transport, rules) {
                            tracing::warn!(%error, "cannot register a peer with epoll; closing it");
                        }
                    }
                    Accepted::Exhausted { error, refused } => {
                        let anonymous = Party::Identity(Identity::Anonymous);
                        if self.should_record(now, anonymous, RecordKind::NoRoom) {
                            tracing::warn!(%error, refused, "out of resources for another peer; pausing accept");
                        }
                    }
                    Accepted::Failed { error, address } => {
                        tracing::error!(%error, %address, "the listener failed; no longer listening");
                    }
                }
            }
        }
    }

    /// Recreates removed socket files.
    pub(super) fn renew_socket_files(&mut self, now: Now) {
        if !self.listeners.has_lost_file() {
            return;
        }
        // Peers that connected before the removal wait in the backlog of the old socket.
        self.listeners.retry_all(now.at);
        self.take_peers(now);
        self.listeners.renew_files(self.poll.registry(), now.at);
    }

    /// Closes the listeners for the shutdown, except that for the numbers.
    pub(super) fn close_listeners(&mut self) {
        self.listeners.close_for_callers(self.poll.registry());
    }
}
