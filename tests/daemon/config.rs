//! Configuration in a running daemon: starts that fail, reloads, lost files, directories and questions.

mod client_directory;
mod confirm;
mod failed_starts;
mod reload;
mod removed_files;
