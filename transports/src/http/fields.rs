//! Headers of a message.

use std::str;

/// Minor version of HTTP/1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0: no chunks, closed after the response unless the client asks otherwise.
    Http10,
    /// HTTP/1.1.
    Http11,
}

impl Version {
    /// The version with this minor number.
    pub(super) const fn of(minor: Option<u8>) -> Self {
        match minor {
            Some(0) => Self::Http10,
            _ => Self::Http11,
        }
    }
}

/// Headers of a message, their names in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fields {
    /// Names and values, one after the other.
    text: Vec<u8>,
    places: Vec<Place>,
}

/// Place of a header in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    name: usize,
    value: usize,
    end: usize,
}

impl Fields {
    /// Copies headers into one text, with the place of each. A head with an allocation for each name
    /// and each value cost a tenth of a call.
    pub(super) fn copy(headers: &[httparse::Header<'_>]) -> Self {
        let bytes = headers.iter().map(|header| header.name.len() + header.value.len()).sum();
        let (mut text, mut places) = (Vec::with_capacity(bytes), Vec::with_capacity(headers.len()));
        for header in headers {
            let name = text.len();
            text.extend(header.name.bytes().map(|byte| byte.to_ascii_lowercase()));
            let value = text.len();
            text.extend_from_slice(header.value);
            places.push(Place { name, value, end: text.len() });
        }
        Self { text, places }
    }

    /// Values of the header with this name (lower case), in order, as far as they are ASCII.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.values(name)
            .filter_map(|value| str::from_utf8(value).ok().filter(|value| value.is_ascii()))
    }

    /// Value of the header with this name (lower case), if it is there exactly once.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.values(name);
        let value = values.next().filter(|_| values.next().is_none())?;
        str::from_utf8(value).ok().filter(|value| value.is_ascii())
    }

    /// Names of all headers, in order.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.pairs().map(|(name, _)| str::from_utf8(name).unwrap_or_default())
    }

    /// Values of the header with this name (lower case), in order.
    pub(super) fn values<'a, 'n>(
        &'a self,
        name: &'n str,
    ) -> impl Iterator<Item = &'a [u8]> + use<'a, 'n> {
        let of_name = self.pairs().filter(move |(known, _)| *known == name.as_bytes());
        of_name.map(|(_, value)| value)
    }

    /// Whether the connection may carry another message behind this one, as far as the sender says.
    pub(super) fn keep_alive(&self, version: Version) -> bool {
        let says = |wanted: &str| {
            let mut options = self.all("connection").flat_map(|value| value.split(','));
            options.any(|option| option.trim().eq_ignore_ascii_case(wanted))
        };
        match version {
            Version::Http10 => says("keep-alive") && !says("close"),
            Version::Http11 => !says("close"),
        }
    }

    /// Names and values of all headers, in order.
    fn pairs(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.places.iter().map(|place| {
            let part = |from, to| self.text.get(from..to).unwrap_or_default();
            (part(place.name, place.value), part(place.value, place.end))
        })
    }
}

/// The number in a content-length header.
pub(super) fn length(value: &[u8]) -> Option<u64> {
    let is_number = !value.is_empty() && value.len() <= 19 && value.iter().all(u8::is_ascii_digit);
    str::from_utf8(value).ok().filter(|_| is_number)?.parse().ok()
}
