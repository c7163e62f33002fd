//! Doors: the listeners, which a reload may open and close while the server runs.

use std::collections::BTreeSet;
use std::io;

use ceased_core::time::Instant;
use ceased_transports::{Address, ListenError, Listener, SocketMode};
use mio::Token;

use super::{FIRST_CONN, FIRST_LISTENER, Server};
use crate::daemon::say;

/// A listener and when to try it again, if it needs that.
pub(super) struct Door {
    pub(super) token: Token,
    pub(super) listener: Listener,
    pub(super) identity: ForPeers,
    /// Somebody may be waiting whom no event announces.
    pub(super) again: Option<Instant>,
    /// As it was asked for: with port 0 where the system chose.
    place: Address,
    owner: Owner,
}

/// Who the peers of a listener are.
#[derive(Debug, Clone, Copy)]
pub(super) enum ForPeers {
    /// What the system says of them.
    Credentials,
    /// Nobody vouches for them.
    Anonymous,
}

/// Who made a listening socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    Us,
    /// The service manager, which goes on listening when we close our copy.
    Manager,
}

impl Server {
    /// Listens on `address`; the address as it became, with the port the system chose.
    ///
    /// Peers on a Unix socket are the users the system says they are (TSK-39); peers on TCP are
    /// anonymous (TSK-40).
    ///
    /// # Errors
    /// [`ListenError`].
    pub fn listen(&mut self, address: &Address) -> Result<Address, ListenError> {
        let listener = Listener::bind(address)?;
        Ok(self.install(address, listener, Owner::Us))
    }

    /// Accepts peers of a socket that the service manager made for `address`.
    pub(crate) fn listen_on(&mut self, address: &Address, listener: Listener) {
        self.install(address, listener, Owner::Manager);
    }

    fn install(&mut self, place: &Address, listener: Listener, owner: Owner) -> Address {
        let identity = match listener.address() {
            Address::Unix { .. } | Address::Stdio => ForPeers::Credentials,
            Address::Tcp(_) => ForPeers::Anonymous,
        };
        let address = listener.address().clone();
        let taken: BTreeSet<Token> = self.doors.iter().map(|door| door.token).collect();
        let mut numbers = (FIRST_LISTENER..FIRST_CONN as usize).map(Token);
        // With so many doors the last ones are heard by each other's events, which costs a look.
        let token = numbers.find(|token| !taken.contains(token)).unwrap_or(Token(FIRST_LISTENER));
        let place = place.clone();
        self.doors.push(Door { token, listener, identity, again: None, place, owner });
        address
    }

    /// Watches the doors from `first` on and says that they are open.
    pub(super) fn open_doors(&mut self, first: usize) -> io::Result<()> {
        for door in self.doors.iter_mut().skip(first) {
            door.listener.register(self.poll.registry(), door.token)?;
            // Who came before is not announced.
            door.again = Some(self.clock.now().at);
            // Not before: whoever reads this may send signals at once.
            say(format_args!("listening on {}", door.listener.address()));
        }
        Ok(())
    }

    /// Listens on exactly `wanted` from now on. Nothing is changed when one of them cannot be had.
    /// Peers stay, wherever they came in.
    ///
    /// # Errors
    /// What cannot be listened on, and why.
    pub(super) fn change_doors(&mut self, wanted: &[Address]) -> Result<(), String> {
        let mut stays = BTreeSet::new();
        let mut modes: Vec<(usize, SocketMode)> = Vec::new();
        let mut opened: Vec<(&Address, Listener)> = Vec::new();
        for address in wanted.iter().filter(|address| **address != Address::Stdio) {
            let mut doors = self.doors.iter().enumerate();
            match doors.find(|(at, door)| !stays.contains(at) && is_same(&door.place, address)) {
                Some((at, door)) => {
                    stays.insert(at);
                    if let (Address::Unix { mode, .. }, Owner::Us) = (address, door.owner) {
                        modes.push((at, *mode));
                    }
                }
                None => {
                    let listener = Listener::bind(address).map_err(|error| error.to_string())?;
                    opened.push((address, listener));
                }
            }
        }
        for (at, mode) in modes {
            let Some(door) = self.doors.get_mut(at) else { continue };
            door.listener.set_mode(mode).map_err(|error| error.to_string())?;
        }
        self.close_doors(&stays);
        let first = self.doors.len();
        for (address, listener) in opened {
            self.install(address, listener, Owner::Us);
        }
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
