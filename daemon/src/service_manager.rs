//! The service manager, when there is one: the sockets it hands over, what it wants to hear, and
//! its watchdog. Without one all of this does nothing and costs nothing.
//!
//! The protocols are systemd's, by its public documentation (`sd_listen_fds(3)`, `sd_notify(3)`,
//! `sd_watchdog_enabled(3)`); other managers speak them, too.

mod notify;
mod sockets;
mod watchdog;
#[cfg(test)]
mod watched;

pub(crate) use notify::Notifier;
pub(crate) use sockets::InheritedSockets;
pub(crate) use watchdog::{Due, Watchdog};

/// What the service manager gave this process. Taken once, before anything else is opened.
#[derive(Debug, Default)]
pub(crate) struct Service {
    /// Sockets that listen already.
    pub(crate) sockets: InheritedSockets,
    /// The notifier for the service manager.
    pub(crate) notifier: Notifier,
    /// How often it wants to hear that all is well; `None` when it does not care.
    pub(crate) watchdog: Option<Watchdog>,
}

impl Service {
    /// Reads what the environment says and takes over the sockets. A second call finds none.
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
