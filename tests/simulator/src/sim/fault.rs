//! Faults of a simulated world. A run has some of them and not others.

use std::fmt;

/// One kind of trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// Bytes of a peer arrive late.
    Delay,
    /// Bytes arrive in pieces, cut anywhere.
    Split,
    /// A peer closes its side and goes on reading.
    HalfClose,
    /// A peer is gone without a word.
    Vanish,
    /// A peer stops reading, or reads a little at a time.
    StopReading,
    /// Jobs run until they are stopped.
    Hang,
    /// Jobs do not stop when they are told to.
    IgnoreCancel,
    /// Jobs report after they have ended.
    LateReport,
    /// Jobs report progress and log messages all the time.
    Spam,
    /// Jobs leave processes behind.
    Linger,
    /// The wall clock is set, forward and back.
    WallJump,
    /// The machine sleeps: every deadline is missed at once.
    Sleep,
    /// The settings are read again.
    Reload,
    /// The daemon is told to shut down.
    Drain,
    /// Peers send lines that are no message.
    Garbage,
    /// Peers use ids that are in flight.
    DuplicateId,
    /// Peers cancel requests of others, or unknown ones.
    Foreign,
    /// Peers speak before initialize, or initialize twice.
    Rude,
    /// The generator of ids repeats itself.
    Collide,
}

impl Fault {
    /// Every fault.
    pub const ALL: [Self; 19] = [
        Self::Delay,
        Self::Split,
        Self::HalfClose,
        Self::Vanish,
        Self::StopReading,
        Self::Hang,
        Self::IgnoreCancel,
        Self::LateReport,
        Self::Spam,
        Self::Linger,
        Self::WallJump,
        Self::Sleep,
        Self::Reload,
        Self::Drain,
        Self::Garbage,
        Self::DuplicateId,
        Self::Foreign,
        Self::Rude,
        Self::Collide,
    ];

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Delay => "delay",
            Self::Split => "split",
            Self::HalfClose => "half-close",
            Self::Vanish => "vanish",
            Self::StopReading => "stop-reading",
            Self::Hang => "hang",
            Self::IgnoreCancel => "ignore-cancel",
            Self::LateReport => "late-report",
            Self::Spam => "spam",
            Self::Linger => "linger",
            Self::WallJump => "wall-jump",
            Self::Sleep => "sleep",
            Self::Reload => "reload",
            Self::Drain => "drain",
            Self::Garbage => "garbage",
            Self::DuplicateId => "duplicate-id",
            Self::Foreign => "foreign",
            Self::Rude => "rude",
            Self::Collide => "collide",
        }
    }
}

/// The faults that may exist in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Faults(u32);

impl Faults {
    /// None of them.
    pub const NONE: Self = Self(0);
    /// All of them.
    pub const ALL: Self = Self((1 << Fault::ALL.len()) - 1);

    /// Whether this one is among them.
    #[must_use]
    pub const fn has(self, fault: Fault) -> bool {
        self.0 & (1 << fault as u32) != 0
    }

    /// The same and this one.
    #[must_use]
    pub const fn with(self, fault: Fault) -> Self {
        Self(self.0 | 1 << fault as u32)
    }

    /// Reads `all`, `none`, or names with commas between them.
    ///
    /// # Errors
    /// When a name is no fault; the text lists those there are.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "all" => return Ok(Self::ALL),
            "none" => return Ok(Self::NONE),
            _ => {}
        }
        text.split(',').try_fold(Self::NONE, |faults, name| {
            let fault = Fault::ALL.into_iter().find(|fault| fault.name() == name);
            let names = || Fault::ALL.map(Fault::name).join(", ");
            let unknown = || format!("there is no fault {name:?}; there are: {}", names());
            fault.map(|fault| faults.with(fault)).ok_or_else(unknown)
        })
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::ALL {
            return f.write_str("all");
        }
        let names: Vec<_> =
            Fault::ALL.into_iter().filter(|fault| self.has(*fault)).map(Fault::name).collect();
        f.write_str(if names.is_empty() { "none" } else { "" })?;
        f.write_str(&names.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read_as_they_are_written() {
        for faults in
            [Faults::ALL, Faults::NONE, Faults::NONE.with(Fault::Drain).with(Fault::Delay)]
        {
            assert_eq!(Faults::parse(&faults.to_string()), Ok(faults));
        }
        assert!(Faults::parse("drain,nothing").is_err());
    }
}
