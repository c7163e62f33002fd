//! TLS of a listener.

use std::fmt;
use std::io;
use std::sync::Arc;

use ceased_transports::Transport;

type Accept = dyn Fn(Box<dyn Transport>) -> io::Result<Box<dyn Transport>> + Send + Sync;

/// Puts TLS over the connections of a listener.
#[derive(Clone)]
pub(crate) struct Secure(Arc<Accept>);

impl Secure {
    /// TLS by this function.
    #[cfg(feature = "tls")]
    pub(crate) fn new<T: Transport + 'static>(
        accept: impl Fn(Box<dyn Transport>) -> io::Result<T> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(move |below| Ok(Box::new(accept(below)?))))
    }

    /// A connection over TLS.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn accept(&self, below: Box<dyn Transport>) -> io::Result<Box<dyn Transport>> {
        (self.0)(below)
    }
}

impl fmt::Debug for Secure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secure")
    }
}
