//! Ends a process tree: a shell, its children, and one that moved to a session of its own.
//!
//! Run it with `cargo run -p ceased-process --example process_tree`.

use std::error::Error;
use std::time::Duration;

use ceased_process::{Ending, Launch, Runner, TreeState, guard};

/// A shell that leaves a process behind which no signal to its group reaches, and waits.
const SCRIPT: &str = "setsid sleep 1000 & sleep 1000 & echo started; wait";

fn main() -> Result<(), Box<dyn Error>> {
    // First: this program may be started again as the guard of a process tree.
    guard::init();

    let runner = Runner::start()?;

    // A command that ends by itself.
    let mut hello = runner.spawn(Launch::new(["echo", "hello"]))?;
    if let TreeState::Ended(Ending::Exited(exit)) = hello.wait(Duration::from_secs(10))? {
        println!("echo printed {:?}", exit.stdout.text());
    }

    // A tree that does not: every process of it is gone when `end` returns.
    let mut tree = runner.spawn(Launch::new(["sh", "-c", SCRIPT]))?;
    println!("after a second: {:?}", tree.wait(Duration::from_secs(1))?);
    let exit = tree.end(Duration::from_secs(2))?;
    println!("printed {:?}; {} processes were signalled", exit.stdout.text(), exit.signalled);
    println!("processes alive: {:?}", exit.survivors);
    Ok(())
}
