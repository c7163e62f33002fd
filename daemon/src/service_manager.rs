//! The service manager, if there is one: inherited sockets, notifications and the watchdog. Without
//! one, nothing here has any effect.
//!
//! The protocols are systemd's, by its public documentation (`sd_listen_fds(3)`, `sd_notify(3)`,
//! `sd_watchdog_enabled(3)`); other managers implement them too.

mod notify;
mod sockets;
mod watchdog;
#[cfg(test)]
mod watched;

pub(crate) use notify::Notifier;
pub(crate) use sockets::InheritedSockets;
pub(crate) use watchdog::{Due, Watchdog};

/// Environment of the service manager. Taken once, before any other descriptor is opened.
#[derive(Debug, Default)]
pub(crate) struct Service {
    /// Inherited listening sockets.
    pub(crate) sockets: InheritedSockets,
    /// The notifier for the service manager.
    pub(crate) notifier: Notifier,
    /// The watchdog; `None` if the manager did not enable it.
    pub(crate) watchdog: Option<Watchdog>,
}

impl Service {
    /// Reads the environment and takes the sockets. A second call finds none.
    pub(crate) fn take() -> Self {
        let var = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let text = |name: &str| var(name).and_then(|value| value.into_string().ok());
        Self {
            sockets: InheritedSockets::take(&text),
            notifier: Notifier::to(var("NOTIFY_SOCKET").as_deref()),
            watchdog: Watchdog::asked_for(
                text("WATCHDOG_USEC").as_deref(),
                text("WATCHDOG_PID").as_deref(),
                std::process::id(),
            ),
        }
    }
}
