//! Replays a recording of `ceased serve --record FILE` or `ceased stdio --record FILE` and compares
//! the engine's actions with the recorded ones:
//!
//! ```console
//! $ cargo run --example replay -- FILE
//! ```

use std::fs::File;
use std::io::BufReader;
use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(path) = std::env::args_os().nth(1) else {
        eprintln!("replay FILE");
        return ExitCode::from(2);
    };
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) => {
            eprintln!("{}: {error}", path.display());
            return ExitCode::from(2);
        }
    };
    match ceased::record::replay(BufReader::new(file)) {
        Ok(done) => {
            println!("{} events, {} bytes: identical", done.events, done.bytes);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
