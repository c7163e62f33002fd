//! Every fixture that the official conformance suite of MCP names, as tools, prompts and resources of
//! an embedded daemon: over Streamable HTTP at an address, or over standard input and output.
//!
//! ```sh
//! cargo run --release --example conformance -- 127.0.0.1:3000
//! npx @modelcontextprotocol/conformance@0.2.0-alpha.12 server \
//!     --url http://127.0.0.1:3000/mcp --requirements 2026-07-28
//! ```

use std::error::Error;
use std::time::Duration;

use ceased::{
    Address, AskError, Completion, CompletionRequest, Content, Daemon, EmbeddedResource,
    ErrorObject, HandlerOffer, HandlerTool, HostOffer, Job, LogLevel, OfferKind, PromptResult,
    Question, ResourceRequest, ResourceResult, TaskSupport, Tool, ToolError, ToolResult,
};
use serde_json::{Value, json};

const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";
const WAV: &str = "UklGRigAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQQAAAAAAAAA";
/// Schema with the vocabulary of JSON Schema 2020-12 that a server must not lose.
const SCHEMA: &str = r##"{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object",
    "$defs":{"address":{"$anchor":"addressDef","type":"object",
        "properties":{"street":{"type":"string"},"city":{"type":"string"}}}},
    "properties":{"name":{"type":"string"},"address":{"$ref":"#/$defs/address"},
        "contactMethod":{"type":"string","enum":["phone","email"]},
        "phone":{"type":"string"},"email":{"type":"string"}},
    "allOf":[{"anyOf":[{"required":["phone"]},{"required":["email"]}]}],
    "if":{"properties":{"contactMethod":{"const":"phone"}},"required":["contactMethod"]},
    "then":{"required":["phone"]},"else":{"required":["email"]},"additionalProperties":false}"##;

type Called = Result<ToolResult, ToolError>;

fn main() -> Result<(), Box<dyn Error>> {
    // Required only if a tool is a command; has no cost otherwise.
    ceased::process::guard::init();
    let address =
        std::env::args().nth(1).ok_or("usage: conformance ADDRESS | conformance stdio")?;
    let mut daemon = Daemon::new();
    for tool in [contents()?, questions()?, inputs()?, tasks()?, changes()?].into_iter().flatten() {
        daemon = daemon.tool(tool);
    }
    for offer in prompts().into_iter().chain(resources()) {
        daemon = daemon.offer(offer);
    }
    daemon = match &*address {
        "stdio" => daemon.listen(Address::Stdio),
        address => daemon.listen_http(format!("tcp:{address}").parse::<Address>()?),
    };
    daemon.build()?.run()?;
    Ok(())
}

fn tool(name: &str, handler: fn(&Job) -> Called) -> HandlerTool {
    HandlerTool::new(name, handler).description(format!("Fixture {name} of the conformance suite"))
}

/// A tool that takes these texts.
fn taking(name: &str, texts: &[&str], handler: fn(&Job) -> Called) -> HandlerTool {
    let texts = texts.iter().map(|text| (String::from(*text), json!({"type": "string"})));
    let properties = Value::Object(texts.collect());
    tool(name, handler)
        .input_schema(json!({"type": "object", "properties": properties}).to_string())
}

fn blocks<const N: usize>(content: [Content; N]) -> Called {
    Ok(ToolResult { content: content.into(), ..ToolResult::default() })
}

fn text(uri: &str, mime_type: &str, text: &str) -> EmbeddedResource {
    let (uri, text) = (uri.to_owned(), text.to_owned());
    EmbeddedResource::Text { uri, mime_type: Some(mime_type.to_owned()), text }
}

fn embedded(resource: EmbeddedResource) -> Content {
    Content::Resource { resource, annotations: None }
}

fn argument(job: &Job, name: &str) -> Result<String, ToolError> {
    let arguments: Value = job.arguments()?;
    Ok(arguments[name].as_str().unwrap_or_default().to_owned())
}

/// Tools that show each type of content, progress, log messages and failure.
fn contents() -> Result<Vec<Tool>, Box<dyn Error>> {
    let pause = |job: &Job| job.token().sleep(Duration::from_millis(50));
    Ok(vec![
        tool("test_simple_text", |_| {
            Ok(ToolResult::text("This is a simple text response for testing."))
        })
        .build()?,
        tool("test_image_content", |_| blocks([Content::image(PNG, "image/png")])).build()?,
        tool("test_audio_content", |_| blocks([Content::audio(WAV, "audio/wav")])).build()?,
        tool("test_embedded_resource", |_| {
            let said = "This is an embedded resource content.";
            blocks([embedded(text("test://embedded-resource", "text/plain", said))])
        })
        .build()?,
        tool("test_multiple_content_types", |_| {
            let data = r#"{"test":"data","value":123}"#;
            let data = text("test://mixed-content-resource", "application/json", data);
            let title = Content::text("Multiple content types test:");
            blocks([title, Content::image(PNG, "image/png"), embedded(data)])
        })
        .build()?,
        tool("test_tool_with_logging", |job| {
            for said in ["Tool execution started", "Tool processing data", "Tool execution completed"] {
                job.log(LogLevel::Info, &json!(said));
                job.token().sleep(Duration::from_millis(50))?;
            }
            Ok(ToolResult::text("logged"))
        })
        .build()?,
        tool("test_logging_tool", |job| {
            job.log(LogLevel::Info, &json!("a message"));
            Ok(ToolResult::text("logged"))
        })
        .build()?,
        HandlerTool::new("test_tool_with_progress", move |job: &Job| {
            for progress in [0.0, 50.0, 100.0] {
                job.progress(progress, Some(100.0), None);
                pause(job)?;
            }
            Ok(ToolResult::text("done"))
        })
        .description("Reports progress")
        .build()?,
        tool("test_error_handling", |_| {
            Err(ToolError::Failed("This tool intentionally returns an error for testing".into()))
        })
        .build()?,
        tool("json_schema_2020_12_tool", |_| Ok(ToolResult::text("valid")))
            .description("Tool with JSON Schema 2020-12 features")
            .input_schema(SCHEMA)
            .build()?,
        tool("test_x_mcp_header", |job| Ok(ToolResult::text(argument(job, "region")?)))
            .input_schema(
                r#"{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}"#,
            )
            .build()?,
    ])
}

fn form(message: &str, properties: Value) -> Value {
    json!({"message": message, "requestedSchema": {"type": "object", "properties": properties}})
}

fn named(key: &str, message: &str, property: &str, kind: &str) -> Question {
    let mut form = form(message, json!({property: {"type": kind}}));
    form["requestedSchema"]["required"] = json!([property]);
    Question::new("elicitation/create", form).named(key)
}

fn sampling(prompt: &str) -> Value {
    let content = json!({"type": "text", "text": prompt});
    json!({"messages": [{"role": "user", "content": content}], "maxTokens": 100})
}

/// Asks for one form and says the answer.
fn elicit(job: &Job, form: &Value) -> Called {
    let answer = job.ask("elicitation/create", form)?;
    let (action, content) = (answer["action"].as_str().unwrap_or_default(), &answer["content"]);
    Ok(ToolResult::text(format!("Elicitation completed: action={action}, content={content}")))
}

/// Asks by an answer, and says all answers.
fn gather<const N: usize>(job: &Job, questions: [Question; N]) -> Called {
    let mut said = String::from("state-ok");
    for answer in job.ask_all(questions) {
        said.push_str(&format!(" {}", answer?));
    }
    Ok(ToolResult::text(said))
}

/// Tools that ask the client while they run.
fn questions() -> Result<Vec<Tool>, Box<dyn Error>> {
    Ok(vec![
        taking("test_sampling", &["prompt"], |job| {
            let answer = job.ask("sampling/createMessage", &sampling(&argument(job, "prompt")?))?;
            Ok(ToolResult::text(format!("LLM response: {}", answer["content"]["text"])))
        })
        .build()?,
        taking("test_elicitation", &["message"], |job| {
            let properties = json!({
                "username": {"type": "string", "description": "User's response"},
                "email": {"type": "string", "description": "User's email address"}
            });
            let mut form = form(&argument(job, "message")?, properties);
            form["requestedSchema"]["required"] = json!(["username", "email"]);
            elicit(job, &form)
        })
        .build()?,
        tool("test_streaming_elicitation", |job| {
            job.progress(1.0, None, Some("asking"));
            gather(job, [named("user_name", "What is your name?", "name", "string")])
        })
        .build()?,
        tool("test_elicitation_sep1034_defaults", |job| {
            let statuses = ["active", "inactive", "pending"];
            let properties = json!({
                "name": {"type": "string", "default": "John Doe"},
                "age": {"type": "integer", "default": 30},
                "score": {"type": "number", "default": 95.5},
                "status": {"type": "string", "enum": statuses, "default": "active"},
                "verified": {"type": "boolean", "default": true}
            });
            elicit(job, &form("Review the defaults", properties))
        })
        .build()?,
        tool("test_elicitation_sep1330_enums", |job| {
            let titled = |names: [&str; 3]| -> Value {
                let one = |(n, title)| json!({"const": format!("value{}", n + 1), "title": title});
                names.into_iter().enumerate().map(one).collect()
            };
            let options = json!(["option1", "option2", "option3"]);
            let properties = json!({
                "untitledSingle": {"type": "string", "enum": options},
                "titledSingle": {"type": "string",
                    "oneOf": titled(["First Option", "Second Option", "Third Option"])},
                "legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"],
                    "enumNames": ["Option One", "Option Two", "Option Three"]},
                "untitledMulti": {"type": "array", "items": {"type": "string", "enum": options}},
                "titledMulti": {"type": "array",
                    "items": {"anyOf": titled(["First Choice", "Second Choice", "Third Choice"])}}
            });
            elicit(job, &form("Choose", properties))
        })
        .build()?,
        tool("test_missing_capability", |job| {
            match job.ask("sampling/createMessage", &sampling("anything")) {
                Err(AskError::Refused(_)) => {
                    Err(ToolError::Rpc(ErrorObject::missing_capability("sampling/createMessage")))
                }
                answer => Ok(ToolResult::text(answer?.to_string())),
            }
        })
        .build()?,
    ])
}

/// Tools whose answers ask for input (SEP-2322).
fn inputs() -> Result<Vec<Tool>, Box<dyn Error>> {
    let confirm = || named("confirm", "Please confirm", "ok", "boolean");
    let name = || named("user_name", "What is your name?", "name", "string");
    let roots = || Question::new("roots/list", json!({})).named("client_roots");
    let sample = |key: &str, prompt: &str| {
        Question::new("sampling/createMessage", sampling(prompt)).named(key)
    };
    let asking = |name: &str, handler: Box<dyn Fn(&Job) -> Called + Send + Sync>| {
        HandlerTool::new(format!("test_input_required_result_{name}"), handler)
            .description("Asks for input by its answer")
            .build()
    };
    Ok(vec![
        asking("elicitation", Box::new(move |job| gather(job, [name()])))?,
        asking(
            "sampling",
            Box::new(move |job| {
                gather(job, [sample("capital_question", "What is the capital of France?")])
            }),
        )?,
        asking("list_roots", Box::new(move |job| gather(job, [roots()])))?,
        asking("request_state", Box::new(move |job| gather(job, [confirm()])))?,
        asking("tampered_state", Box::new(move |job| gather(job, [confirm()])))?,
        asking(
            "multiple_inputs",
            Box::new(move |job| {
                gather(job, [name(), sample("greeting", "Generate a greeting"), roots()])
            }),
        )?,
        asking(
            "multi_round",
            Box::new(|job| {
                gather(job, [named("step1", "Step 1: What is your name?", "name", "string")])?;
                let colour = "Step 2: What is your favorite color?";
                gather(job, [named("step2", colour, "color", "string")])
            }),
        )?,
        asking(
            "capabilities",
            // A question that the client cannot answer is refused unsent; the other is asked.
            Box::new(move |job| {
                let answers = job.ask_all([name(), sample("greeting", "Generate a greeting")]);
                Ok(ToolResult::text(format!("{answers:?}")))
            }),
        )?,
    ])
}

/// Tools that run as tasks.
fn tasks() -> Result<Vec<Tool>, Box<dyn Error>> {
    let delete = |what: &str| named(what, "Delete it?", "confirm", "boolean");
    let task = |tool: HandlerTool| tool.task_support(TaskSupport::Optional).build();
    Ok(vec![
        taking("greet", &["name"], |job| {
            Ok(ToolResult::text(format!("Hello, {}!", argument(job, "name")?)))
        })
        .build()?,
        task(
            tool("slow_compute", |job| {
                let arguments: Value = job.arguments()?;
                let seconds = arguments["seconds"].as_f64().unwrap_or_default().clamp(0.0, 600.0);
                job.token().sleep(Duration::from_secs_f64(seconds))?;
                Ok(ToolResult::text(format!("computed for {seconds} s")))
            })
            .input_schema(
                r#"{"type":"object","properties":{"seconds":{"type":"number"},"label":{"type":"string"}}}"#,
            ),
        )?,
        tool("failing_job", |job| {
            job.token().sleep(Duration::from_secs(1))?;
            Err(ToolError::Failed("the job failed, as it always does".into()))
        })
        .task_support(TaskSupport::Required)
        .build()?,
        task(tool("protocol_error_job", |_| {
            Err(ToolError::Rpc(ErrorObject::new(-32603, "the job ended in a protocol error")))
        }))?,
        task(
            HandlerTool::new("confirm_delete", move |job: &Job| gather(job, [delete("delete")]))
                .description("Deletes a file once that is confirmed")
                .input_schema(r#"{"type":"object","properties":{"filename":{"type":"string"}}}"#),
        )?,
        task(
            HandlerTool::new("multi_input", move |job: &Job| {
                gather(job, [delete("first"), delete("second")])
            })
            .description("Asks two questions at once"),
        )?,
        tool("test_tool_with_task", |job| {
            let name = gather(job, [named("user_name", "What is your name?", "name", "string")])?;
            job.become_task();
            job.token().sleep(Duration::from_millis(100))?;
            Ok(name)
        })
        .task_support(TaskSupport::Required)
        .asks_first()
        .build()?,
    ])
}

/// Tools that change the lists of the daemon while it runs.
fn changes() -> Result<Vec<Tool>, Box<dyn Error>> {
    Ok(vec![
        tool("test_trigger_tool_change", |job| {
            let new = HandlerTool::new("test_added", |_: &Job| Ok(ToolResult::text("added")));
            let new = new.description("A tool that comes and goes").build();
            job.daemon()
                .add_tool(new.map_err(|error| ToolError::Failed(error.to_string().into()))?);
            job.daemon().remove_tool("test_added");
            Ok(ToolResult::text("changed"))
        })
        .build()?,
        tool("test_trigger_prompt_change", |job| {
            job.daemon().add_offer(prompt("test_added_prompt", |_| Ok(said("added"))).build());
            job.daemon().remove_offer(OfferKind::Prompt, "test_added_prompt");
            Ok(ToolResult::text("changed"))
        })
        .build()?,
    ])
}

fn said(text: &str) -> PromptResult {
    PromptResult::user(Content::text(text))
}

fn prompt(name: &str, handler: fn(&Job) -> Result<PromptResult, ToolError>) -> HandlerOffer {
    HandlerOffer::prompt(name, handler).description(format!("Fixture {name}"))
}

fn prompts() -> Vec<HostOffer> {
    vec![
        prompt("test_simple_prompt", |_| Ok(said("This is a simple prompt for testing."))).build(),
        prompt("test_prompt_with_arguments", |job| {
            let (one, two) = (argument(job, "arg1")?, argument(job, "arg2")?);
            Ok(said(&format!("Prompt with arguments: arg1='{one}', arg2='{two}'")))
        })
        .argument("arg1", "First test argument", true)
        .argument("arg2", "Second test argument", true)
        .completion(|job| {
            let CompletionRequest { argument, .. } = job.arguments()?;
            let all = ["paris", "park", "party"].into_iter();
            let values = all.filter(|word| word.starts_with(&argument.value)).map(Into::into);
            Ok(Completion { values: values.collect(), total: None })
        })
        .build(),
        prompt("test_prompt_with_embedded_resource", |job| {
            let uri = argument(job, "resourceUri")?;
            let resource = text(&uri, "text/plain", "Embedded resource content for testing.");
            let request = Content::text("Please process the embedded resource above.");
            Ok(PromptResult::user(embedded(resource)).and(ceased::Audience::User, request))
        })
        .argument("resourceUri", "URI of the resource to embed", true)
        .build(),
        prompt("test_prompt_with_image", |_| {
            let request = Content::text("Please analyze the image above.");
            let image = Content::image(PNG, "image/png");
            Ok(PromptResult::user(image).and(ceased::Audience::User, request))
        })
        .build(),
        prompt("test_input_required_result_prompt", |job| {
            let question = "What context should the prompt use?";
            let [answer] = job.ask_all([named("user_context", question, "context", "string")]);
            Ok(said(&format!("Use the context {}.", answer?["content"]["context"])))
        })
        .build(),
    ]
}

fn resources() -> Vec<HostOffer> {
    let plain = |uri: &'static str, name: &str, content: &'static str| {
        HandlerOffer::resource(uri, name, move |_| Ok(text(uri, "text/plain", content).into()))
            .description(content)
            .mime_type("text/plain")
            .build()
    };
    let static_text = "This is the content of the static text resource.";
    vec![
        plain("test://static-text", "static text", static_text),
        plain("test://watched-resource", "watched resource", "A resource to subscribe to."),
        plain("test://example-resource", "example resource", "An example."),
        HandlerOffer::resource("test://static-binary", "static binary", |_| {
            Ok(ResourceResult::from(EmbeddedResource::Blob {
                uri: "test://static-binary".into(),
                mime_type: Some("image/png".into()),
                blob: PNG.into(),
            }))
        })
        .description("A picture of one pixel")
        .mime_type("image/png")
        .build(),
        HandlerOffer::template("test://template/{id}/data", "template", |job| {
            let ResourceRequest { uri, variables } = job.arguments()?;
            let id = variables.get("id").map_or("", String::as_str);
            let data = format!("Data for ID: {id}");
            let data = json!({"id": id, "templateTest": true, "data": data}).to_string();
            Ok(text(&uri, "application/json", &data).into())
        })
        .description("Data by id")
        .mime_type("application/json")
        .build(),
    ]
}
