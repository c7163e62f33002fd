//! Addresses of a server: names looked up on a thread of their own, and the addresses that a name
//! must not stand for.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use ceased_client::private_address::{is_this_machine, may_stand_for};

/// Look-ups at once: each may take as long as the system's resolver does.
const LOOKUPS_MAX: usize = 64;

/// The addresses of a host, or the reason for which there are none.
pub(crate) type Resolved = Result<Vec<SocketAddr>, String>;

/// Looks up a name on a thread. An address needs none.
pub(crate) fn resolve(
    (host, port): (&str, u16),
    running: &Arc<AtomicUsize>,
    tell: impl FnOnce(Resolved) + Send + 'static,
) -> Option<Resolved> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Some(Ok(vec![SocketAddr::new(address, port)]));
    }
    if running.fetch_add(1, Ordering::Relaxed) >= LOOKUPS_MAX {
        running.fetch_sub(1, Ordering::Relaxed);
        return Some(Err(format!("{LOOKUPS_MAX} names are being looked up already")));
    }
    let (name, count) = (host.to_owned(), Arc::clone(running));
    let started = thread::Builder::new().name("resolver".into()).spawn(move || {
        let found = (&*name, port).to_socket_addrs();
        let found = found.map(Iterator::collect).map_err(|why| format!("{name}: {why}"));
        count.fetch_sub(1, Ordering::Relaxed);
        tell(found);
    });
    match started {
        Ok(_) => None,
        Err(why) => {
            running.fetch_sub(1, Ordering::Relaxed);
            Some(Err(format!("no thread to look up {host}: {why}")))
        }
    }
}

/// REM-05: the addresses that a host may stand for: a name that the world answers for must not lead
/// into a private network.
pub(crate) fn permitted(host: &str, found: Vec<SocketAddr>, allow_private: bool) -> Resolved {
    let may = |address: &SocketAddr| may_stand_for(host, address.ip(), allow_private);
    let (good, bad): (Vec<SocketAddr>, Vec<SocketAddr>) = found.into_iter().partition(may);
    match (good.is_empty(), bad.first()) {
        (false, _) => Ok(good),
        (true, None) => Err(format!("{host} has no address")),
        (true, Some(address)) if is_this_machine(host) => {
            Err(format!("{host} stands for {}, which is not this machine", address.ip()))
        }
        (true, Some(address)) => Err(format!(
            "{host} stands for the private address {}, which is refused: set `allow_private` if it \
             is meant",
            address.ip()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(host: &str, address: &str, allow_private: bool) -> bool {
        permitted(host, vec![SocketAddr::new(address.parse().unwrap(), 80)], allow_private).is_ok()
    }

    /// REM-05
    #[test]
    fn names_do_not_lead_into_private_networks() {
        for address in [
            "10.1.2.3",
            "127.0.0.1",
            "169.254.169.254",
            "192.168.0.1",
            "172.16.0.1",
            "0.0.0.0",
            "100.64.0.1",
            "::1",
            "::",
            "fd00::1",
            "fe80::1",
            "::ffff:10.0.0.1",
            "64:ff9b::a00:1",
        ] {
            assert!(!ask("example.org", address, false), "{address}");
            assert!(ask("example.org", address, true), "{address}");
            assert!(ask(address, address, false), "{address} is named");
        }
        for address in ["93.184.216.34", "2606:2800:220:1::1"] {
            assert!(ask("example.org", address, false), "{address}");
        }
        assert!(ask("localhost", "127.0.0.1", false) && ask("a.localhost", "::1", false));
        for address in ["10.0.0.1", "93.184.216.34"] {
            assert!(!ask("localhost", address, true), "{address}: a name for this machine alone");
        }
    }
}
