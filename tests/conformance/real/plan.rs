//! The servers, the steps that a client takes with each, and the calls that are cut off.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::source;

/// Hook of a repository: it starts a server in a session of its own, as `npm start &` does, and
/// goes on for longer than any test.
const HOOK: &str = "#!/bin/sh\nsetsid sleep 86400 &\nexec sleep 86401\n";

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Every server with its steps.
pub(super) fn servers(installed: &Path, folder: &Path, repository: &Path) -> Vec<Value> {
    let node = |name: &str| text(&installed.join("node/node_modules/.bin").join(name));
    let python = |name: &str| text(&installed.join("venv/bin").join(name));
    let dates = json!({
        "GIT_AUTHOR_DATE": "2026-01-02T03:04:05Z", "GIT_COMMITTER_DATE": "2026-01-02T03:04:05Z"});
    vec![
        everything("everything", &node("mcp-server-everything"), &json!({})),
        asking(&node("mcp-server-everything")),
        questions("questions-python", &python_asking(installed)),
        questions("questions-typescript", &typescript_asking(installed)),
        files(&node("mcp-server-filesystem"), &folder.join("files")),
        memory(&node("mcp-server-memory"), &folder.join("memory.jsonl")),
        git(&python("mcp-server-git"), repository, dates),
        time(&python("mcp-server-time")),
        fetch(&python("mcp-server-fetch")),
        app(&node("mcp-server-basic-vanillajs")),
        thinking(&node("mcp-server-sequential-thinking")),
        browser(&node("playwright-mcp")),
        of_the_first_line(installed, "testkit", "mcp_test_server.server", testkit_steps()),
        of_the_first_line(installed, "calculator", "mcp_server_calculator", calculator_steps()),
    ]
}

/// MCP Apps: a tool whose user interface is a resource.
fn app(command: &str) -> Value {
    let uri = "ui://get-time/mcp-app.html";
    let steps = vec![
        step("resources", "resources", json!({})),
        step("user interface", "read", json!({"uri": uri})),
        step("no such resource", "read", json!({"uri": "ui://none"})),
        step("no prompts", "prompt", json!({"name": "none"})),
    ];
    server("app", &[command.to_owned(), "--stdio".to_owned()], json!({}), steps)
}

fn thinking(command: &str) -> Value {
    let thought = |number: u32, next: bool| json!({"thought": "one", "thoughtNumber": number, "totalThoughts": 2, "nextThoughtNeeded": next});
    let steps = vec![
        call("first", "sequentialthinking", thought(1, true)),
        call("last", "sequentialthinking", thought(2, false)),
        call("invalid", "sequentialthinking", json!({"thought": 7})),
    ];
    server("thinking", &[command.to_owned()], json!({}), steps)
}

/// A browser is not installed: its tools are listed, and refuse their arguments.
fn browser(command: &str) -> Value {
    let steps = vec![
        call("invalid", "browser_resize", json!({"width": "wide"})),
        call("no page", "browser_close", json!({})),
    ];
    server("browser", &[command.to_owned(), "--headless".to_owned()], json!({}), steps)
}

/// A server of the first line of the Python SDK.
fn of_the_first_line(installed: &Path, name: &str, module: &str, steps: Vec<Value>) -> Value {
    let run = format!("from {module} import main; main()");
    let command = [text(&installed.join("venv/bin/python")), "-c".to_owned(), run];
    let env =
        json!({"PYTHONPATH": text(&installed.join("venv/old")), "PYTHONDONTWRITEBYTECODE": "1"});
    server(name, &command, env, steps)
}

fn testkit_steps() -> Vec<Value> {
    vec![
        step("prompts", "prompts", json!({})),
        step("resources", "resources", json!({})),
        call("add", "math_add", json!({"a": 0.1, "b": 2})),
        call("divide", "math_divide", json!({"a": 1, "b": 0})),
        call("invalid", "math_add", json!({"a": "x"})),
    ]
}

fn calculator_steps() -> Vec<Value> {
    vec![
        call("calculate", "calculate", json!({"expression": "2 * (3 + 4)"})),
        call("wrong", "calculate", json!({"expression": "2 *"})),
    ]
}

/// Servers with extensions, and the requests of a client without an SDK, whose methods no SDK of a
/// session has.
pub(super) fn extended(installed: &Path, folder: &Path) -> Vec<Value> {
    let ask = |method: &str, params: Value| json!({"method": method, "params": params});
    let skill = "skill://greet/SKILL.md";
    let lists = ["tools/list", "prompts/list", "resources/list", "resources/templates/list"];
    let lists: Vec<Value> = lists.iter().map(|method| ask(method, json!({}))).collect();
    let skills = vec![
        ask("skills/list", json!({})),
        ask("skills/get", json!({"uri": skill})),
        ask("skills/get", json!({"uri": "skill://none/SKILL.md"})),
        ask("resources/read", json!({"uri": skill})),
        ask("vendor/none", json!({"x": [1.5]})),
    ];
    let app = vec![
        ask("resources/read", json!({"uri": "ui://get-time/mcp-app.html"})),
        ask("prompts/get", json!({"name": "none"})),
        ask("logging/setLevel", json!({"level": "debug"})),
        ask("resources/unsubscribe", json!({"uri": "ui://none"})),
        ask("tools/list", json!({"cursor": "none"})),
        ask("vendor/none", json!({"x": [1.5]})),
    ];
    let python = text(&installed.join("venv/bin/python"));
    let command = json!([python, text(&source("skills_server.py")), text(&folder.join("skills"))]);
    let page = text(&installed.join("node/node_modules/.bin/mcp-server-basic-vanillajs"));
    let everything = text(&installed.join("node/node_modules/.bin/mcp-server-everything"));
    let of = |name: &str, command: Value, revision: &str, more: &[Value]| {
        let requests = [&lists[..], more].concat();
        json!({"name": format!("{name} {revision}"), "command": command, "revision": revision,
            "requests": requests})
    };
    vec![
        of("skills", command.clone(), "2026-07-28", &skills),
        of("skills", command, "2025-11-25", &skills),
        of("app", json!([page, "--stdio"]), "2025-11-25", &app),
        of("everything", json!([everything]), "2025-11-25", &app),
    ]
}

fn python_asking(installed: &Path) -> [String; 2] {
    [text(&installed.join("venv/bin/python")), text(&source("asking_server.py"))]
}

fn typescript_asking(installed: &Path) -> [String; 2] {
    ["node".to_owned(), text(&installed.join("node/asking.mjs"))]
}

/// A server with a tool for each question, which an official client answers.
fn questions(name: &str, command: &[String]) -> Value {
    let steps = ["elicit", "sample", "roots"].map(|tool| call(tool, tool, json!({})));
    let mut server = server(name, command, json!({}), steps.into());
    server["capabilities"] = json!({"sampling": {}, "elicitation": {}, "roots": {}});
    server
}

/// Servers that ask their client, with the tools that do: two of both eras, and one of sessions.
pub(super) fn asked(installed: &Path) -> Vec<Value> {
    let revisions = ["2024-11-05", "2025-06-18", "2025-11-25", "2026-07-28"];
    let tools = ["elicit", "sample", "roots", "log"];
    let everything = text(&installed.join("node/node_modules/.bin/mcp-server-everything"));
    vec![
        json!({"name": "python", "command": python_asking(installed), "tools": tools,
            "revisions": revisions}),
        json!({"name": "typescript", "command": typescript_asking(installed), "tools": tools,
            "revisions": revisions}),
        // It takes seconds to start, and has no other question.
        json!({"name": "fastmcp", "command": [text(&installed.join("venv/bin/python")),
            text(&source("asking_fast.py"))], "tools": ["elicit", "log"], "revisions": ["2025-11-25"]}),
        json!({"name": "everything", "command": [everything], "tools": ["trigger-sampling-request",
            "trigger-elicitation-request", "get-roots-list"], "revisions": ["2025-06-18", "2025-11-25"]}),
    ]
}

fn step(label: &str, op: &str, params: Value) -> Value {
    json!({"label": label, "op": op, "params": params})
}

fn call(label: &str, tool: &str, arguments: Value) -> Value {
    step(label, "call", json!({"name": tool, "arguments": arguments}))
}

/// A server with its steps; each begins with its tools, and ends with a tool that it has not and a
/// ping.
fn server(name: &str, command: &[String], env: Value, steps: Vec<Value>) -> Value {
    let mut all = vec![step("tools", "tools", json!({}))];
    all.extend(steps);
    all.push(call("no such tool", "no-such-tool", json!({})));
    all.push(step("ping", "ping", json!({})));
    json!({"name": name, "command": command, "env": env, "capabilities": {}, "steps": all})
}

fn everything(name: &str, command: &str, env: &Value) -> Value {
    let prompt = json!({"type": "ref/prompt", "name": "completable-prompt"});
    let template =
        json!({"type": "ref/resource", "uri": "demo://resource/dynamic/text/{resourceId}"});
    let complete = |of: &Value, name: &str, value: &str| json!({"ref": of, "argument": {"name": name, "value": value}});
    let read = |uri: &str| json!({"uri": uri});
    let get = |name: &str, arguments: Value| json!({"name": name, "arguments": arguments});
    let mut long =
        call("progress", "trigger-long-running-operation", json!({"duration": 0.4, "steps": 4}));
    long["progress"] = json!(true);
    let mut subscribe = step("subscribe", "subscribe", read("demo://resource/dynamic/text/1"));
    subscribe["awaits"] = json!("notifications/message");
    let steps = vec![
        step("prompts", "prompts", json!({})),
        step("resources", "resources", json!({})),
        step("templates", "templates", json!({})),
        call("echo", "echo", json!({"message": "ünï \u{1f600} \"quoted\"\\\n\t\u{2028} done"})),
        call("sum", "get-sum", json!({"a": 0.1, "b": 1e300})),
        call("image", "get-tiny-image", json!({})),
        call("structured", "get-structured-content", json!({"location": "Chicago"})),
        call(
            "annotated",
            "get-annotated-message",
            json!({"messageType": "error", "includeImage": true}),
        ),
        call("links", "get-resource-links", json!({"count": 3})),
        call(
            "reference",
            "get-resource-reference",
            json!({"resourceType": "Text", "resourceId": 2}),
        ),
        call("environment", "get-env", json!({})),
        call("invalid arguments", "get-sum", json!({"a": "one"})),
        call("task required", "simulate-research-query", json!({"topic": "x"})),
        long,
        step("prompt", "prompt", get("simple-prompt", json!({}))),
        step("prompt with arguments", "prompt", get("args-prompt", json!({"city": "Rome"}))),
        step(
            "prompt with a resource",
            "prompt",
            get("resource-prompt", json!({"resourceType": "Text", "resourceId": "1"})),
        ),
        step("no such prompt", "prompt", get("no-such-prompt", json!({}))),
        step("static resource", "read", read("demo://resource/static/document/features.md")),
        step("dynamic resource", "read", read("demo://resource/dynamic/text/7")),
        step("no such resource", "read", read("demo://resource/none")),
        step("completion of a prompt", "complete", complete(&prompt, "department", "S")),
        step("completion of a template", "complete", complete(&template, "resourceId", "1")),
        step("level", "level", json!({"level": "debug"})),
        subscribe,
    ];
    server(name, &[command.to_owned()], env.clone(), steps)
}

/// The same server for a client that lets servers ask: it then has tools that ask.
fn asking(command: &str) -> Value {
    let steps = vec![
        call("sample", "trigger-sampling-request", json!({"prompt": "Why?", "maxTokens": 10})),
        call("elicit", "trigger-elicitation-request", json!({})),
        call("roots", "get-roots-list", json!({})),
    ];
    let mut server = server("asking", &[command.to_owned()], json!({}), steps);
    server["capabilities"] = json!({"sampling": {}, "elicitation": {}, "roots": {}});
    server
}

fn files(command: &str, folder: &Path) -> Value {
    let at = |name: &str| text(&folder.join(name));
    let edits = json!([{"oldText": "beta", "newText": "gamma"}]);
    let steps = vec![
        call("read", "read_text_file", json!({"path": at("a.txt")})),
        call("write", "write_file", json!({"path": at("b.txt"), "content": "two\n"})),
        call("edit", "edit_file", json!({"path": at("a.txt"), "edits": edits})),
        call("list", "list_directory", json!({"path": text(folder)})),
        call("tree", "directory_tree", json!({"path": text(folder)})),
        call("search", "search_files", json!({"path": text(folder), "pattern": "*.txt"})),
        call("outside", "read_text_file", json!({"path": "/etc/hostname"})),
        call("allowed", "list_allowed_directories", json!({})),
    ];
    server("filesystem", &[command.to_owned(), text(folder)], json!({}), steps)
}

fn memory(command: &str, file: &Path) -> Value {
    let entity = |name: &str| json!({"name": name, "entityType": "person", "observations": ["is"]});
    let steps = vec![
        step("resources", "resources", json!({})),
        call("create", "create_entities", json!({"entities": [entity("Ann"), entity("Bob")]})),
        call(
            "relate",
            "create_relations",
            json!({"relations": [{"from": "Ann", "to": "Bob", "relationType": "knows"}]}),
        ),
        call("graph", "read_graph", json!({})),
        call("search", "search_nodes", json!({"query": "Ann"})),
        step("resource", "read", json!({"uri": "memory://knowledge-graph"})),
        call("delete", "delete_entities", json!({"entityNames": ["Bob"]})),
        call("graph again", "read_graph", json!({})),
    ];
    server("memory", &[command.to_owned()], json!({"MEMORY_FILE_PATH": text(file)}), steps)
}

fn git(command: &str, repository: &Path, env: Value) -> Value {
    let at = |more: Value| {
        let mut arguments = json!({"repo_path": text(repository)});
        for (name, value) in more.as_object().into_iter().flatten() {
            arguments[name] = value.clone();
        }
        arguments
    };
    let steps = vec![
        call("status", "git_status", at(json!({}))),
        call("commit", "git_commit", at(json!({"message": "one"}))),
        call("log", "git_log", at(json!({"max_count": 5}))),
        call("show", "git_show", at(json!({"revision": "HEAD"}))),
        call("branch", "git_create_branch", at(json!({"branch_name": "other"}))),
        call("nothing to commit", "git_commit", at(json!({"message": "two"}))),
        call("no repository", "git_status", json!({"repo_path": "/"})),
        call("invalid arguments", "git_log", json!({"max_count": "many"})),
    ];
    let command = [command.to_owned(), "--repository".to_owned(), text(repository)];
    server("git", &command, env, steps)
}

fn time(command: &str) -> Value {
    let convert = json!({
        "source_timezone": "Europe/London", "time": "12:30", "target_timezone": "Asia/Tokyo"});
    let steps = vec![
        call("now", "get_current_time", json!({"timezone": "Asia/Tokyo"})),
        call("convert", "convert_time", convert),
        call("no such zone", "get_current_time", json!({"timezone": "Mars/Base"})),
    ];
    server("time", &[command.to_owned(), "--local-timezone=Etc/UTC".to_owned()], json!({}), steps)
}

/// It refuses addresses of this machine, and there are no others in a test.
fn fetch(command: &str) -> Value {
    let steps = vec![
        step("prompts", "prompts", json!({})),
        call("fetch", "fetch", json!({"url": "http://127.0.0.1:9/"})),
        call("no address", "fetch", json!({"url": "nothing"})),
        step(
            "prompt",
            "prompt",
            json!({"name": "fetch", "arguments": {"url": "http://127.0.0.1:9/"}}),
        ),
        step("prompt without arguments", "prompt", json!({"name": "fetch"})),
    ];
    server("fetch", &[command.to_owned(), "--ignore-robots-txt".to_owned()], json!({}), steps)
}

/// A server, a call that takes long, words in the command lines of its processes, and the next call.
pub(super) fn cut(
    installed: &Path,
    folder: &Path,
    server: &str,
    repository: impl FnOnce(&str) -> PathBuf,
) -> Value {
    match server {
        "git" => {
            let at = text(&repository(HOOK));
            json!({
                "command": [text(&installed.join("venv/bin/mcp-server-git"))],
                "env": {},
                "call": {"name": "git_commit", "arguments": {"repo_path": at, "message": "m"}},
                "shows": "sleep 86400",
                "work": "sleep 8640",
                "next": {"name": "git_status", "arguments": {"repo_path": at}},
            })
        }
        _ => json!({
            "command": ["npx", "--offline", "--prefix", text(&installed.join("node")),
                "mcp-server-everything"],
            "env": {"HOME": text(folder), "npm_config_update_notifier": "false"},
            "call": {"name": "trigger-long-running-operation",
                "arguments": {"duration": 600, "steps": 6000}},
            "shows": "mcp-server-everything",
            "work": "",
            "next": {"name": "echo", "arguments": {"message": "next"}},
        }),
    }
}
