//! rmcp's client over HTTP/1.1 on a Unix socket: lists the tools, abandons a call of `long`, and
//! goes on. Usage: rmcp-client SOCKET
use std::time::Duration;

use rmcp::ServiceExt;
use rmcp::model::CallToolRequestParams;
use rmcp::transport::StreamableHttpClientTransport;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let socket = std::env::args().nth(1).expect("a socket");
    let transport =
        StreamableHttpClientTransport::from_unix_socket(&socket, "http://localhost/mcp");
    let client = ().serve(transport).await.expect("a session");
    println!("server {}", client.peer_info().is_some());
    let tools = client.list_all_tools().await.expect("a list");
    println!("tools {}", tools.iter().map(|tool| &*tool.name).collect::<Vec<_>>().join(","));
    let mut arguments = serde_json::Map::new();
    arguments.insert("ms".into(), 600_000.into());
    let call = client.call_tool(CallToolRequestParams::new("long").with_arguments(arguments));
    let abandoned = tokio::time::timeout(Duration::from_millis(500), call).await;
    println!("abandoned {}", abandoned.is_err());
    let tools = client.list_all_tools().await.expect("a list");
    println!("goes on {}", tools.len());
    client.cancel().await.expect("it closes");
    println!("closed");
}
