//! Faults of the child-side setup, and how the parent receives them.

/// Why a child could not execute its program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fault {
    /// Failed step.
    pub(crate) step: Step,
    /// Error number of the kernel.
    pub(crate) errno: i32,
}

/// Steps of the setup before the program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Entering the control group.
    Cgroup,
    /// Placing descriptors 0 to 3.
    Descriptors,
    /// Starting a session.
    Session,
    /// Setting resource limits.
    Limits,
    /// Changing user and groups.
    Credentials,
    /// Entering the working directory.
    Cwd,
    /// Executing the program.
    Exec,
    /// Executing the program, whose file exists but whose interpreter does not.
    Interpreter,
    /// Creating the namespaces of a job.
    Namespace,
    /// Mapping the user into its user namespace.
    Ids,
    /// Mounting the file systems of the namespaces.
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
    /// Encoded size in bytes.
    pub(crate) const BYTES: usize = 5;

    /// Encodes the fault.
    pub(crate) const fn encode(self) -> [u8; Self::BYTES] {
        let [a, b, c, d] = self.errno.to_le_bytes();
        [self.step as u8, a, b, c, d]
    }

    /// Decodes the output of [`Fault::encode`]; `None` for anything else.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (&[step], errno) = bytes.split_first_chunk::<1>()?;
        let step = *Step::ALL.get(usize::from(step))?;
        Some(Self { step, errno: i32::from_le_bytes(errno.try_into().ok()?) })
    }

    /// The fault as a nonzero number.
    pub(super) const fn pack(self) -> u64 {
        (self.step as u64 + 1) << 32 | self.errno.cast_unsigned() as u64
    }

    /// Decodes the output of [`Fault::pack`].
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
    fn faults_are_decoded_as_encoded() {
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
