//! A server of rmcp over HTTP of both eras. It writes a line with its port, and one for each call that was
//! begun or aborted.
use std::sync::Arc;

use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ListToolsResult,
    PaginatedRequestParams, ProgressNotificationParam, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::{Map, Value, json};

#[derive(Clone)]
struct Far;

impl ServerHandler for Far {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let schema: Map<String, Value> = [("type".to_owned(), json!("object"))].into_iter().collect();
        let tool = |name: &'static str| Tool::new(name, name, Arc::new(schema.clone()));
        Ok(ListToolsResult { tools: vec![tool("echo"), tool("steps"), tool("hold")], ..Default::default() })
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let argument = |name: &str| {
            let value = call.arguments.as_ref().and_then(|all| all.get(name));
            value.and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let text = match &*call.name {
            "echo" => argument("text"),
            "steps" => {
                let token = context.meta.get_progress_token().expect("a token");
                for progress in [1.0, 2.0] {
                    let step = ProgressNotificationParam::new(token.clone(), progress).with_total(2.0);
                    context.peer.notify_progress(step).await.expect("it is sent");
                }
                "done".to_owned()
            }
            _ => {
                let mark = argument("mark");
                println!("{}", json!({"begun": mark}));
                context.ct.cancelled().await;
                println!("{}", json!({"aborted": mark}));
                mark
            }
        };
        Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let sessions = Arc::new(LocalSessionManager::default());
    let service =
        StreamableHttpService::new(|| Ok(Far), sessions, StreamableHttpServerConfig::default());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    println!("{}", json!({"listening": listener.local_addr().expect("an address").port()}));
    loop {
        let (stream, _) = listener.accept().await.expect("a connection");
        let service = TowerToHyperService::new(service.clone());
        let served = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
        tokio::spawn(served);
    }
}
