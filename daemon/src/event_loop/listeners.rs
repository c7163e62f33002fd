//! Doors: the listeners, which a reload may open and close while the server runs.

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
    /// Listens on `address`; the address as it became, with the port the system chose.
    ///
    /// Peers on a Unix socket are the users the system says they are (TSK-39); peers on TCP are
    /// anonymous (TSK-40).
    ///
    /// # Errors
    /// [`ListenError`].
    pub fn listen(&mut self, address: &Address) -> Result<Address, ListenError> {
        self.listen_for(ListenSpec::open(address.clone()))
    }

    /// As [`Server::listen`], for these peers only.
    pub(crate) fn listen_for(&mut self, entrance: ListenSpec) -> Result<Address, ListenError> {
        let listener = Listener::bind_for(&entrance.address, entrance.group)?;
        Ok(self.install(entrance, listener, Owner::Us))
    }

    /// Accepts peers of a socket that the service manager made for this address.
    pub(crate) fn listen_on(&mut self, entrance: ListenSpec, listener: Listener) {
        self.install(entrance, listener, Owner::Manager);
    }

    fn install(&mut self, entrance: ListenSpec, listener: Listener, owner: Owner) -> Address {
        let ListenSpec { address: place, group, access } = entrance;
        let address = listener.address().clone();
        let taken: BTreeSet<Token> = self.doors.iter().map(|door| door.token).collect();
        let mut numbers = (FIRST_LISTENER..FIRST_CONN as usize).map(Token);
        // With so many doors the last ones are heard by each other's events, which costs a look.
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

    /// Watches the doors from `first` on and says that they are open.
    pub(super) fn open_doors(&mut self, first: usize) -> io::Result<()> {
        for door in self.doors.iter_mut().skip(first) {
            door.listener.register(self.poll.registry(), door.token)?;
            // Peers that came before are not announced.
            door.again = Some(self.clock.now().at);
            // Not before: whoever reads this may send signals at once.
            say(format_args!("listening on {}", door.listener.address()));
        }
        Ok(())
    }

    /// Listens on exactly `wanted` from now on. Nothing is changed when one of them cannot be had.
    /// Peers stay, wherever they came in, unless their token is in none of the new ones.
    ///
    /// # Errors
    /// What cannot be listened on, and why.
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
        // Those of the service manager may be left between them, so by address.
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

    /// Closes every door but those with these places in the list, and those that are not ours to
    /// close while we run: their peers would wait for ever.
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
                // Closing it takes it out of the poll as well.
                let _ = door.listener.deregister(registry);
            }
            is_wanted
        });
    }

    /// Whether there are socket files to look after.
    pub(super) fn has_socket_files(&self) -> bool {
        self.doors.iter().any(BoundListener::has_file)
    }

    /// Listens anew where the socket file was removed: by a cleaner of temporary files, or with the
    /// runtime directory of a user who has logged out.
    pub(super) fn renew_doors(&mut self, now: Now) {
        let is_lost = |door: &BoundListener| door.has_file() && !door.listener.is_in_place();
        if !self.doors.iter().any(is_lost) {
            return;
        }
        // Those who connected before the file was removed are waiting at the old socket.
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
                    tracing::warn!(%address, "the socket file was removed; listening there again");
                    door.unrenewed = None;
                }
                Err(why) if door.unrenewed.as_ref() == Some(&why) => {}
                Err(why) => {
                    tracing::error!(%address, %why, "the socket file was removed, and no peer can connect: it is tried again");
                    door.unrenewed = Some(why);
                }
            }
        }
    }

    /// Closes every door, for the end.
    pub(super) fn close_all_doors(&mut self) {
        for mut door in self.doors.drain(..) {
            let _ = door.listener.deregister(self.poll.registry());
        }
    }
}

/// The same place; a mode can be changed where it is.
fn is_same(one: &Address, other: &Address) -> bool {
    match (one, other) {
        (Address::Unix { path: one, .. }, Address::Unix { path: other, .. }) => one == other,
        (Address::Tcp(one), Address::Tcp(other)) => one == other,
        (Address::Stdio, Address::Stdio) => true,
        (Address::Unix { .. } | Address::Tcp(_) | Address::Stdio, _) => false,
    }
}
