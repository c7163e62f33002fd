//! The tool `echo` at /mcp, as the documentation of rmcp builds a server. Its argument is the port.

use std::sync::Arc;

use rmcp::handler::server::{router::tool::ToolRouter, wrapper::Parameters};
use rmcp::transport::streamable_http_server::{
    StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
};
use rmcp::{ServerHandler, schemars, tool, tool_handler, tool_router};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Echo {
    text: String,
}

#[derive(Clone)]
struct Server {
    #[allow(dead_code, reason = "read by the macro")]
    tool_router: ToolRouter<Self>,
}

#[tool_router]
impl Server {
    fn new() -> Self {
        Self { tool_router: Self::tool_router() }
    }

    #[tool(description = "echo")]
    async fn echo(&self, Parameters(Echo { text }): Parameters<Echo>) -> String {
        text
    }
}

#[tool_handler]
impl ServerHandler for Server {}

#[tokio::main]
async fn main() {
    let service = StreamableHttpService::new(
        || Ok(Server::new()),
        Arc::new(LocalSessionManager::default()),
        StreamableHttpServerConfig::default(),
    );
    let router = axum::Router::new().nest_service("/mcp", service);
    let port = std::env::args().nth(1).expect("a port");
    let address = format!("127.0.0.1:{port}");
    let listener = tokio::net::TcpListener::bind(address).await.expect("a free port");
    axum::serve(listener, router).await.expect("a server");
}
