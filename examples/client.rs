//! A blocking client: calls a tool of a running daemon, and cancels it when it takes too long.
//!
//! ```sh
//! ceased serve &
//! cargo run --example client -- /run/user/1000/ceased/ceased.sock sleep '{"ms":60000}'
//! ```

use std::time::Duration;

use ceased::client::{Client, Endpoint, Error, Options};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(socket), Some(tool)) = (args.next(), args.next()) else {
        return Err("usage: client SOCKET TOOL [ARGUMENTS]".into());
    };
    let arguments = serde_json::from_str(args.next().as_deref().unwrap_or("{}"))?;

    let mut client = Client::connect(&Endpoint::Unix(socket.into()), Options::default())?;
    let call = client.start_tool(&tool, &arguments)?;
    match client.wait(call, Some(Duration::from_secs(2)), &mut |notification| {
        eprintln!("{notification:?}");
    }) {
        Ok(result) => println!("{}", result.get()),
        Err(Error::TimedOut(_)) => {
            client.cancel(call, Some("it took too long"))?;
            client.flush(Duration::from_secs(1))?;
            println!("cancelled");
        }
        Err(error) => return Err(error.into()),
    }
    Ok(())
}
