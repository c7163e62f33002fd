//! A bound on the time of one session: a subject may use up a part of the time limit at each step.

use std::time::{Duration, Instant};

/// Time limits that a session may take, and the least time that this is.
const LIMITS: u32 = 20;
const LEAST: Duration = Duration::from_secs(60);

/// The life of a session.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Life {
    limit: Duration,
    span: Duration,
    over: Instant,
}

impl Life {
    /// A session that begins now, with this time limit of each thing that has to happen.
    pub(crate) fn new(limit: Duration) -> Self {
        let span = (limit * LIMITS).max(LEAST);
        Self { limit, span, over: Instant::now() + span }
    }

    /// The end of the time limit of a thing that begins now.
    pub(crate) fn until(self) -> Instant {
        self.over.min(Instant::now() + self.limit)
    }

    /// That instant, or the end of the life if it is earlier.
    ///
    /// # Errors
    ///
    /// When the life is over.
    pub(crate) fn clip(self, until: Instant) -> Result<Instant, String> {
        match Instant::now() < self.over {
            true => Ok(until.min(self.over)),
            false => Err(format!("the check is not over within {:?}", self.span)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn life_is_over_after_so_many_time_limits() {
        let mut life = Life::new(Duration::from_secs(10));
        assert_eq!(life.span, Duration::from_secs(200));
        assert_eq!(Life::new(Duration::from_millis(1)).span, LEAST);
        let far = Instant::now() + Duration::from_secs(1000);
        assert_eq!(life.clip(far).unwrap(), life.over);
        assert!(life.until() < life.over);
        life.over = Instant::now();
        assert!(life.until() <= Instant::now());
        assert!(life.clip(far).unwrap_err().contains("within 200s"));
    }
}
