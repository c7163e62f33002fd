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
        let machine = self.machine.as_ref().filter(|_| matches!(identity, Identity::User(_)));
        machine.map_or_else(|| identity.to_string(), |machine| format!("{identity}@{machine}"))
    }

    /// The identity of a name; `None` for one of another machine.
    pub(super) fn read(&self, name: &str) -> Option<Identity> {
        let is_user = name.starts_with("uid:");
        match self.machine.as_ref().filter(|_| is_user) {
            None => Identity::parse(name),
            Some(own) => {
                let (user, machine) = name.split_once('@')?;
                Identity::parse(user).filter(|_| machine == own)
            }
        }
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
        let everyone = [Identity::Anonymous, Identity::Token("a@b".into()), Identity::User(1000)];
        for identity in &everyone {
            assert_eq!(here.read(&here.of(identity)).as_ref(), Some(identity));
            assert_eq!(shared.read(&shared.of(identity)).as_ref(), Some(identity));
        }
        assert_eq!(there.read(&here.of(&Identity::User(1000))), None);
        assert_eq!(shared.of(&Identity::User(1000)), "uid:1000");
        assert_eq!(there.of(&Identity::Token("ci".into())), "token:ci");
    }
}
