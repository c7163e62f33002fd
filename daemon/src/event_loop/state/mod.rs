//! The state of the event loop. Each type owns its fields; a transition is a method that returns
//! its consequences, and the server executes them. No file here knows the server.

pub(crate) mod auth;
pub(crate) mod client_directory;
pub(crate) mod clock;
pub(crate) mod connections;
pub(crate) mod constants;
pub(crate) mod endings;
pub(crate) mod handshakes;
pub(crate) mod job_output;
pub(crate) mod listen_spec;
pub(crate) mod listeners;
pub(crate) mod observer;
pub(crate) mod partial_frames;
pub(crate) mod party;
pub(crate) mod read_scheduler;
pub(crate) mod record_limiter;
pub(crate) mod reload;
pub(crate) mod remote_instances;
pub(crate) mod running_jobs;
pub(crate) mod server_logs;
pub(crate) mod shutdown;
pub(crate) mod store_location;
pub(crate) mod upkeep;
pub(crate) mod upstream_instances;
pub(crate) mod wrong_tokens;
