//! Why a child could not become the program it was meant to become, and how its parent learns it.

/// Why a child could not become the program it was meant to become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fault {
    /// What it was doing.
    pub(crate) step: Step,
    /// The error number the kernel gave.
    pub(crate) errno: i32,
}

/// The steps between being born and running the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Entering the control group.
    Cgroup,
    /// Putting descriptors 0 to 3 in place.
    Descriptors,
    /// Starting a session of its own.
    Session,
    /// Setting resource limits.
    Limits,
    /// Becoming another user.
    Credentials,
    /// Entering the working directory.
    Cwd,
    /// Executing the program.
    Exec,
    /// Executing the program, whose file is there: what it asks for to be run by is not.
    Interpreter,
    /// Making the namespaces of a job.
    Namespace,
    /// Mapping the user into its user namespace.
    Ids,
    /// Mounting what the namespaces need.
    Mounts,
}

impl Step {
    const ALL: [Self; 11] = [
        Self::Cgroup,
        Self::Descriptors,
        Self::Session,
        Self::Limits,
        Self::Credentials,
        Self::Cwd,
        Self::Exec,
        Self::Interpreter,
        Self::Namespace,
        Self::Ids,
        Self::Mounts,
    ];
}

impl Fault {
    /// How many bytes a fault is on a socket.
    pub(crate) const BYTES: usize = 5;

    /// The fault as bytes.
    pub(crate) const fn encode(self) -> [u8; Self::BYTES] {
        let [a, b, c, d] = self.errno.to_le_bytes();
        [self.step as u8, a, b, c, d]
    }

    /// Reads what [`Fault::encode`] wrote; `None` for anything else.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (&[step], errno) = bytes.split_first_chunk::<1>()?;
        let step = *Step::ALL.get(usize::from(step))?;
        Some(Self { step, errno: i32::from_le_bytes(errno.try_into().ok()?) })
    }

    /// The fault as a number, which is not 0.
    pub(super) const fn pack(self) -> u64 {
        (self.step as u64 + 1) << 32 | self.errno.cast_unsigned() as u64
    }

    /// Reads what [`Fault::pack`] made.
    pub(super) fn unpack(number: u64) -> Option<Self> {
        let step = usize::try_from(number >> 32).ok()?.checked_sub(1)?;
        let errno = u32::try_from(number & u64::from(u32::MAX)).ok()?.cast_signed();
        Some(Self { step: *Step::ALL.get(step)?, errno })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_survive_the_way() {
        for step in Step::ALL {
            let fault = Fault { step, errno: -7 };
            assert_eq!(Fault::decode(&fault.encode()), Some(fault));
            assert_eq!(Fault::unpack(fault.pack()), Some(fault));
        }
        assert_eq!(Fault::decode(&[]), None);
        assert_eq!(Fault::decode(&[11, 0, 0, 0, 0]), None);
        assert_eq!(Fault::decode(&[4, 0, 0, 0]), None);
        assert_eq!(Fault::unpack(0), None);
        assert_eq!(Fault::unpack(u64::MAX), None);
    }
}
