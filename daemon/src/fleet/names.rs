//! Identities as the table has them: a user of a machine is another one on the next machine, unless the
//! machines share their users.

use std::fmt::Write as _;

use ceased_core::identity::Identity;

/// Writes and reads identities.
#[derive(Debug, Clone)]
pub(super) struct Names {
    /// Behind the number of a user; `None` where the machines share their users.
    machine: Option<String>,
}

impl Names {
    /// Names on the machine with this key.
    pub(super) fn new(key: [u8; 16], shared_users: bool) -> Self {
        Self { machine: (!shared_users).then(|| hex(key)) }
    }

    /// The name of an identity.
    pub(super) fn of(&self, identity: &Identity) -> String {
        match (identity, &self.machine) {
            (Identity::User(_), Some(machine)) => format!("{identity}@{machine}"),
            (Identity::User(_) | Identity::Token(_) | Identity::Anonymous, _) => {
                identity.to_string()
            }
        }
    }

    /// The identity of a name; `None` for one of another machine.
    pub(super) fn read(&self, name: &str) -> Option<Identity> {
        if name == "anonymous" {
            return Some(Identity::Anonymous);
        }
        if let Some(token) = name.strip_prefix("token:") {
            return Some(Identity::Token(token.into()));
        }
        let user = name.strip_prefix("uid:")?;
        let number = match (&self.machine, user.split_once('@')) {
            (None, None) => user,
            (Some(own), Some((number, machine))) if machine == own => number,
            (Some(_) | None, _) => return None,
        };
        number.parse().ok().map(Identity::User)
    }
}

/// A key as text.
pub(super) fn hex(key: [u8; 16]) -> String {
    key.iter().fold(String::new(), |mut text, byte| {
        // Writing to a text does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FLT-02: a name is read as the identity that it was written for, on its machine alone.
    #[test]
    fn users_are_those_of_a_machine_unless_shared() {
        let here = Names::new([7; 16], false);
        let there = Names::new([8; 16], false);
        let shared = Names::new([7; 16], true);
        let everyone = [Identity::Anonymous, Identity::Token("ci".into()), Identity::User(1000)];
        for identity in &everyone {
            assert_eq!(here.read(&here.of(identity)).as_ref(), Some(identity));
            assert_eq!(shared.read(&shared.of(identity)).as_ref(), Some(identity));
        }
        assert_eq!(there.read(&here.of(&Identity::User(1000))), None);
        assert_eq!(shared.of(&Identity::User(1000)), "uid:1000");
        assert_eq!(there.of(&Identity::Token("ci".into())), "token:ci");
    }
}
