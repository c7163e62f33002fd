//! Addresses of private networks, and of this machine.

use std::net::{IpAddr, Ipv4Addr};

/// Whether a host, which is a name or an address, is this machine: a loopback address, `localhost`, or
/// a name below it (RFC 6761). A name is so only as far as its addresses are: see [`may_stand_for`].
pub fn is_this_machine(host: &str) -> bool {
    let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    let is_loopback = |ip: IpAddr| ip.to_canonical().is_loopback();
    name == "localhost" || name.ends_with(".localhost") || host.parse().is_ok_and(is_loopback)
}

/// Whether a host may be reached at an address that was found for it: this machine is at a loopback
/// address alone, whatever answers the question for its name, and another name is in no private network
/// unless that is permitted.
pub fn may_stand_for(host: &str, ip: IpAddr, allow_private: bool) -> bool {
    let ip = ip.to_canonical();
    let is_address = host.parse::<IpAddr>().is_ok();
    match is_this_machine(host) {
        true => ip.is_loopback(),
        false => is_address || allow_private || !is_private(ip),
    }
}

/// Whether an address is not one of the Internet.
pub fn is_private(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => {
            let [first, second, ..] = ip.octets();
            ip.is_private()
                || ip.is_loopback()
                || ip.is_link_local()
                || ip.is_broadcast()
                || ip.is_documentation()
                || ip.is_multicast()
                || first == 0
                || (first == 100 && (64..128).contains(&second))
        }
        IpAddr::V6(ip) => {
            // An address of the other kind inside one for translation.
            let [.., high, low] = ip.segments();
            let is_translated = ip.segments().starts_with(&[0x64, 0xff9b]);
            let [a, b] = high.to_be_bytes();
            let [c, d] = low.to_be_bytes();
            ip.is_loopback()
                || ip.is_unspecified()
                || ip.is_multicast()
                || ip.is_unique_local()
                || ip.is_unicast_link_local()
                || (is_translated && is_private(IpAddr::V4(Ipv4Addr::new(a, b, c, d))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_names_and_addresses() {
        for (host, expected) in [
            ("localhost", true),
            ("LocalHost.", true),
            ("app.localhost", true),
            ("127.9.9.9", true),
            ("::1", true),
            ("::ffff:127.0.0.1", true),
            ("localhost.example.org", false),
            ("mylocalhost", false),
            ("10.0.0.1", false),
            ("0.0.0.0", false),
            ("", false),
        ] {
            assert_eq!(is_this_machine(host), expected, "{host}");
        }
    }
}
