//! Addresses of private networks.

use std::net::{IpAddr, Ipv4Addr};

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
