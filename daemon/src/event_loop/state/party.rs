//! Parties: units to which shares, delays and counts of the daemon apply.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ceased_core::identity::Identity;
use ceased_transports::Peer as Origin;

/// An identity, or the network of a peer without one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Party {
    /// A user, a token, or an anonymous local peer.
    Identity(Identity),
    /// A network address, or the /64 network from which one IPv6 host can choose addresses.
    Network(IpAddr),
}

impl Party {
    /// The party of a peer with this identity.
    pub(crate) fn of(identity: &Identity, origin: &Origin) -> Self {
        match identity {
            Identity::User(_) | Identity::Token(_) | Identity::Subject(_) => {
                Self::Identity(identity.clone())
            }
            Identity::Anonymous => Self::from(origin),
        }
    }
}

impl From<&Origin> for Party {
    /// The party of an unauthenticated peer.
    fn from(origin: &Origin) -> Self {
        match origin {
            Origin::Tcp { addr } => Self::Network(network(addr.ip().to_canonical())),
            Origin::Unix { uid, .. } | Origin::Stdio { uid } => {
                Self::Identity(Identity::User(*uid))
            }
            Origin::Child { .. } => Self::Identity(Identity::Anonymous),
        }
    }
}

/// The network from which one host can choose addresses.
fn network(address: IpAddr) -> IpAddr {
    match address {
        address if address.is_loopback() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
    }
}

/// The oldest entry of the party with most entries, if there are `max` of all parties; so that no
/// other party loses a place. Smaller numbers are older.
pub(crate) fn oldest_of_most<T: Ord + Copy>(all: Vec<(Party, T)>, max: usize) -> Option<T> {
    if all.len() < max {
        return None;
    }
    let mut parties: BTreeMap<Party, (usize, T)> = BTreeMap::new();
    for (party, held) in all {
        let (count, oldest) = parties.entry(party).or_insert((0, held));
        (*count, *oldest) = (*count + 1, held.min(*oldest));
    }
    let most = parties.into_values().max_by_key(|(count, _)| *count)?;
    Some(most.1)
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Identity(identity) => write!(f, "{identity}"),
            Self::Network(address @ IpAddr::V4(_)) => write!(f, "tcp:{address}"),
            Self::Network(address @ IpAddr::V6(_)) => write!(f, "tcp:[{address}]/64"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn party(address: &str) -> String {
        let addr = address.parse().expect("an address");
        Party::of(&Identity::Anonymous, &Origin::Tcp { addr }).to_string()
    }

    #[test]
    fn oldest_entry_of_the_largest_party_is_chosen() {
        let of = |user| Party::Identity(Identity::User(user));
        let all = vec![(of(1), 1), (of(2), 7), (of(2), 5), (of(2), 6), (of(3), 2), (of(3), 3)];
        assert_eq!(oldest_of_most(all.clone(), 7), None);
        assert_eq!(oldest_of_most(all, 6), Some(5));
        assert_eq!(oldest_of_most(Vec::<(Party, u64)>::new(), 0), None);
    }

    #[test]
    fn addresses_of_one_host_are_one_party() {
        for (address, of) in [
            ("127.0.0.1:1", "tcp:127.0.0.1"),
            ("127.9.8.7:2", "tcp:127.0.0.1"),
            ("[::1]:3", "tcp:127.0.0.1"),
            ("[::ffff:127.0.0.2]:4", "tcp:127.0.0.1"),
            ("10.0.0.1:5", "tcp:10.0.0.1"),
            ("[::ffff:10.0.0.1]:6", "tcp:10.0.0.1"),
            ("[2001:db8:1:2:3:4:5:6]:7", "tcp:[2001:db8:1:2::]/64"),
            ("[2001:db8:1:2::9]:8", "tcp:[2001:db8:1:2::]/64"),
        ] {
            assert_eq!(party(address), of, "{address}");
        }
        let origin = Origin::Unix { uid: 7, gid: 7, pid: None };
        assert_eq!(Party::from(&origin), Party::Identity(Identity::User(7)));
        let token = Identity::Token("ci".into());
        let addr = "10.0.0.1:5".parse().expect("an address");
        assert_eq!(Party::of(&token, &Origin::Tcp { addr }), Party::Identity(token));
    }
}
