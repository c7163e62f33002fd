//! Listeners, which a reload may open and close while the server runs.

use super::constants::FIRST_CONN;

use super::bound_listener::{BoundListener, Owner};
use super::constants::FIRST_LISTENER;
use super::listen_spec::ListenSpec;
use super::server::Server;

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use ceased_core::time::Now;
use ceased_transports::{Address, ListenError, Listener};
use mio::Token;

use crate::announce::say;

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
    pub(crate) fn listen_for(&mut self, entrance: ListenSpec) -> Result<Address, ListenError> {
        let listener = Listener::bind_for(&entrance.address, entrance.group)?;
        Ok(self.install(entrance, listener, Owner::Us))
    }

    /// Accepts peers of a socket inherited from the service manager for this address.
    pub(crate) fn listen_on(&mut self, entrance: ListenSpec, listener: Listener) {
        self.install(entrance, listener, Owner::Manager);
    }

    fn install(&mut self, entrance: ListenSpec, listener: Listener, owner: Owner) -> Address {
        let ListenSpec { address: place, group, access } = entrance;
        let address = listener.address().clone();
        let taken: BTreeSet<Token> = self.doors.iter().map(|door| door.token).collect();
        let mut numbers = (FIRST_LISTENER..FIRST_CONN as usize).map(Token);
        // Beyond that many listeners the last ones share a token, at the cost of an extra `accept`.
        let token = numbers.find(|token| !taken.contains(token)).unwrap_or(Token(FIRST_LISTENER));
        let (again, unrenewed) = (None, None);
        self.doors.push(BoundListener {
            token,
            listener,
            access,
            again,
            place,
            group,
            owner,
            unrenewed,
        });
        address
    }

    /// Registers the listeners from `first` on and announces them.
    pub(super) fn open_doors(&mut self, first: usize) -> io::Result<()> {
        for door in self.doors.iter_mut().skip(first) {
            door.listener.register(self.poll.registry(), door.token)?;
            // Peers that connected before are not announced by epoll.
            door.again = Some(self.clock.now().at);
            // Only after registering: a reader of this line may send signals at once.
            say(format_args!("listening on {}", door.listener.address()));
        }
        Ok(())
    }

    /// Changes the listeners to exactly `wanted`; all or nothing. Peers stay, whatever their
    /// listener, unless their token was revoked.
    ///
    /// # Errors
    /// The address that cannot be listened on, and the cause.
    pub(super) fn change_doors(&mut self, now: Now, wanted: Vec<ListenSpec>) -> Result<(), String> {
        let mut stays: BTreeMap<usize, ListenSpec> = BTreeMap::new();
        let mut opened: Vec<(ListenSpec, Listener)> = Vec::new();
        for entrance in wanted.into_iter().filter(|it| it.address != Address::Stdio) {
            let mut doors = self.doors.iter().enumerate();
            let is_this = |(at, door): &(usize, &BoundListener)| {
                !stays.contains_key(at) && is_same(&door.place, &entrance.address)
            };
            if let Some((at, _)) = doors.find(is_this) {
                stays.insert(at, entrance);
            } else {
                let listener = Listener::bind_for(&entrance.address, entrance.group);
                opened.push((entrance, listener.map_err(|error| error.to_string())?));
            }
        }
        for (at, ListenSpec { address, group, .. }) in &stays {
            let Some(door) = self.doors.get_mut(*at) else { continue };
            if let (Address::Unix { mode, .. }, Owner::Us) = (address, door.owner) {
                door.listener.set_file(*mode, *group).map_err(|error| error.to_string())?;
                door.group = *group;
            }
        }
        self.close_doors(&stays.keys().copied().collect());
        // Inherited listeners may remain between them, so look up by address.
        for entrance in stays.into_values() {
            let mut doors = self.doors.iter_mut();
            if let Some(door) = doors.find(|door| is_same(&door.place, &entrance.address)) {
                door.access = entrance.access;
            }
        }
        let first = self.doors.len();
        for (entrance, listener) in opened {
            self.install(entrance, listener, Owner::Us);
        }
        self.drop_revoked(now);
        self.open_doors(first).map_err(|error| error.to_string())
    }

    /// Closes every listener except those at these indexes, and inherited ones: peers of those
    /// would wait forever.
    fn close_doors(&mut self, stays: &BTreeSet<usize>) {
        let mut at = 0;
        let registry = self.poll.registry();
        self.doors.retain_mut(|door| {
            let is_wanted = stays.contains(&at);
            at += 1;
            let address = door.listener.address();
            if !is_wanted && door.owner == Owner::Manager {
                tracing::warn!(%address, "still listening: the service manager owns this socket");
                return true;
            }
            if !is_wanted {
                say(format_args!("no longer listening on {address}"));
                // Closing also deregisters it.
                let _ = door.listener.deregister(registry);
            }
            is_wanted
        });
    }

    /// Whether there are socket files to check.
    pub(super) fn has_socket_files(&self) -> bool {
        self.doors.iter().any(BoundListener::has_file)
    }

    /// Recreates removed socket files: removed by a cleaner of temporary files, or with the runtime
    /// directory of a user who logged out.
    pub(super) fn renew_doors(&mut self, now: Now) {
        let is_lost = |door: &BoundListener| door.has_file() && !door.listener.is_in_place();
        if !self.doors.iter().any(is_lost) {
            return;
        }
        // Peers that connected before the removal wait in the backlog of the old socket.
        self.doors.iter_mut().for_each(|door| door.again = Some(now.at));
        self.take_peers(now);
        let registry = self.poll.registry();
        for door in self.doors.iter_mut().filter(|door| is_lost(door)) {
            let _ = door.listener.deregister(registry);
            let renewed = door.listener.renew(door.group).map_err(|error| error.to_string());
            let watched = door.listener.register(registry, door.token);
            let outcome = renewed.and_then(|()| watched.map_err(|error| error.to_string()));
            door.again = Some(now.at);
            let address = door.listener.address();
            match outcome {
                Ok(()) => {
                    tracing::warn!(%address, "the socket file was removed; created it again");
                    door.unrenewed = None;
                }
                Err(why) if door.unrenewed.as_ref() == Some(&why) => {}
                Err(why) => {
                    tracing::error!(%address, %why, "the socket file was removed and cannot be created again, so no peer can connect; retrying");
                    door.unrenewed = Some(why);
                }
            }
        }
    }

    /// Closes every listener, for the shutdown.
    pub(super) fn close_all_doors(&mut self) {
        for mut door in self.doors.drain(..) {
            let _ = door.listener.deregister(self.poll.registry());
        }
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
