//! The client of the Rust SDK, for the script of `ceased probe --client`.

use std::error::Error;
use std::time::Duration;

use rmcp::model::{CallToolRequest, CallToolRequestParams, ClientRequest};
use rmcp::service::PeerRequestOptions;
use rmcp::transport::TokioChildProcess;
use rmcp::{Peer, RoleClient, ServiceExt as _};
use tokio::process::Command;
use tokio::time::{sleep, timeout};

/// Time limit of the handshake.
const HANDSHAKE: Duration = Duration::from_secs(3);

/// Time after which calls are given up.
const LIMIT: Duration = Duration::from_secs(1);

fn request(tool: &'static str) -> ClientRequest {
    ClientRequest::CallToolRequest(CallToolRequest::new(CallToolRequestParams::new(tool)))
}

async fn script(peer: &Peer<RoleClient>) -> Result<(), Box<dyn Error>> {
    let call = peer.send_cancellable_request(request("abort"), PeerRequestOptions::no_options()).await?;
    sleep(LIMIT).await;
    call.cancel(Some("aborted".to_owned())).await?;
    let limited = PeerRequestOptions::with_timeout(LIMIT);
    let _ = peer.send_cancellable_request(request("timeout"), limited).await?.await_response().await;
    peer.call_tool(CallToolRequestParams::new("echo")).await?;
    Ok(())
}

/// Runs the script on the server of a command line.
pub async fn run(server: &[String]) -> Result<(), Box<dyn Error>> {
    let (program, args) = server.split_first().ok_or("no command of a server")?;
    let mut command = Command::new(program);
    command.args(args);
    let client = timeout(HANDSHAKE, ().serve(TokioChildProcess::new(command)?)).await??;
    let done = script(client.peer()).await;
    client.cancel().await?;
    done
}
