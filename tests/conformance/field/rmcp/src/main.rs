//! The server of the Rust SDK: `kill_on_drop` is tokio's means to end a child process. With the
//! command line of a server, its client.

mod client;

use std::process::Stdio;

use rmcp::handler::server::tool::ToolRouter;
use rmcp::handler::server::wrapper::Parameters;
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt, tool, tool_handler, tool_router};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::process::Command;

#[derive(Deserialize, JsonSchema)]
struct Text {
    text: String,
}

#[derive(Deserialize, JsonSchema)]
struct Seconds {
    seconds: f64,
}

struct Server {
    #[expect(dead_code, reason = "read by the macro")]
    tool_router: ToolRouter<Self>,
}

async fn run(command: &mut Command, context: RequestContext<RoleServer>) -> Result<String, ErrorData> {
    let failed = |why: std::io::Error| ErrorData::internal_error(why.to_string(), None);
    command.kill_on_drop(true).stdin(Stdio::null()).stdout(Stdio::null());
    let mut child = command.spawn().map_err(failed)?;
    tokio::select! {
        status = child.wait() => Ok(status.map_err(failed)?.to_string()),
        () = context.ct.cancelled() => Err(ErrorData::internal_error("cancelled", None)),
    }
}

#[tool_router]
impl Server {
    #[tool]
    async fn echo(&self, Parameters(Text { text }): Parameters<Text>) -> String {
        text
    }

    #[tool]
    async fn sleep(
        &self,
        Parameters(Seconds { seconds }): Parameters<Seconds>,
        context: RequestContext<RoleServer>,
    ) -> Result<String, ErrorData> {
        run(Command::new("sleep").arg(seconds.to_string()), context).await
    }

    #[tool]
    async fn stubborn(
        &self,
        Parameters(Seconds { seconds }): Parameters<Seconds>,
        context: RequestContext<RoleServer>,
    ) -> Result<String, ErrorData> {
        let script = format!("trap '' TERM; sleep {seconds} & wait");
        run(Command::new("sh").args(["-c", &script]), context).await
    }
}

#[tool_handler]
impl ServerHandler for Server {}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if !words.is_empty() {
        return client::run(&words).await;
    }
    let server = Server { tool_router: Server::tool_router() };
    server.serve(rmcp::transport::stdio()).await?.waiting().await?;
    Ok(())
}
