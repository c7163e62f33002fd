//! The `config.toml` at the top of the repository agrees with the code.

use super::*;

use ceased_core::limits::ServerPlaces;

/// The line before the documentation of servers.
const SERVERS: &str = "\n# Existing MCP servers that speak stdio.";
/// The line before the documentation of agents.
const AGENTS: &str = "\n# Existing ACP agents that speak stdio,";
const FILE: &str = include_str!("../../../../config.toml");

/// The file with every `#key = value` enabled.
fn with_defaults() -> String {
    let take_in = |line: &str| {
        let rest = line.strip_prefix('#')?;
        let name = rest.split_once(" = ")?.0;
        let is_key = name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
        is_key.then(|| rest.to_owned())
    };
    let lines = FILE.lines().map(|line| take_in(line).unwrap_or_else(|| line.to_owned()));
    lines.collect::<Vec<_>>().join("\n")
}

/// The keys of the file with a default, after `#`.
fn documented() -> Vec<&'static str> {
    FILE.lines()
        .filter_map(|line| line.strip_prefix('#')?.split_once(" = "))
        .map(|(name, _)| name)
        .filter(|name| !name.starts_with(' '))
        .collect()
}

fn without_tools(config: Config) -> Config {
    Config { tools: Vec::new(), ..config }
}

#[test]
fn file_gives_the_defaults_and_tools() {
    let config = good(FILE);
    let names: Vec<&str> = config.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["echo", "sleep", "count", "tree"]);
    assert_eq!(without_tools(config), Config::default_in(&environment()));
    // Also for the user that runs the test: a fresh clone works.
    let config = Config::parse(FILE, Path::new("config.toml")).expect("good");
    assert_eq!(without_tools(config), Config::default());
}

#[test]
fn every_commented_default_is_the_default() {
    let config = good(&with_defaults());
    let mut default = Config::default_in(&environment());
    assert_eq!(default.log.level, None, "the default depends on the command");
    default.log.level = Some(Level::Info);
    assert_eq!(without_tools(config), default);
}

/// Every documented default differs from some other value, so the test above compares something.
#[test]
fn every_commented_key_has_an_effect() {
    for name in documented() {
        let broken = FILE.replace(&format!("#{name} = "), &format!("{name} = 0.5 # "));
        assert_ne!(broken, FILE, "{name}");
        let why = parse(&broken).expect_err(name).to_string();
        assert!(why.contains(&format!("`{name}`")), "{name}: {why}");
    }
}

#[test]
fn every_key_is_documented() {
    // The names come from the hint of the reader.
    for header in [
        "daemon]",
        "[listen]]",
        "limits]",
        "tasks]",
        "log]",
        "metrics]",
        "alerts]",
        "otlp]",
        "fleet]",
        "[tool]]",
        "servers]",
        "[server]]",
        "[agent]]",
        "[profile]]",
    ] {
        let why = parse(&format!("[{header}\nqqqqqqqqqqqqqqqq = 1")).expect_err(header);
        let hint = &why.problems().first().expect("one").hint;
        for key in hint.strip_prefix("known keys: ").expect("a list").split(", ") {
            assert!(FILE.contains(key), "{key} of [{header} is not in config.toml");
        }
    }
}

#[test]
fn example_of_a_tcp_listener_works() {
    let start = FILE.find("#     [[listen]]").expect("the example");
    let example: Vec<&str> = FILE
        .get(start..)
        .expect("a position")
        .lines()
        .map_while(|line| line.strip_prefix("#     "))
        .collect();
    let config = good(&example.join("\n"));
    let address = "127.0.0.1:7411".parse().expect("an address");
    let token_file = Some(PathBuf::from("/etc/ceased/tokens"));
    assert_eq!(config.listen, [Listen::Tcp { address, token_file, anonymous: false }]);
}

/// The example shows the defaults.
#[test]
fn example_of_an_http_listener_has_the_defaults() {
    let examples = FILE.match_indices("#     [[listen]]");
    let (start, _) = examples.last().expect("the example");
    let example: Vec<&str> = FILE
        .get(start..)
        .expect("a position")
        .lines()
        .map_while(|line| line.strip_prefix("#     "))
        .collect();
    let config = good(&example.join("\n"));
    let bare = good("[[listen]]\ntransport = \"http\"\naddress = \"127.0.0.1:7412\"\n");
    let ([Listen::Http(example)], [Listen::Http(bare)]) = (&*config.listen, &*bare.listen) else {
        panic!("two HTTP listeners");
    };
    assert_eq!(example.allow_origins, ["https://app.example.com"]);
    let defaults = HttpListen {
        socket: example.socket.clone(),
        allow_origins: example.allow_origins.clone(),
        ..bare.clone()
    };
    assert_eq!(*example, defaults);
}

/// The optional keys of a tool, with the defaults given in the text.
#[test]
fn documented_tool_defaults_are_the_defaults() {
    let (tools, _) = FILE.split_once(SERVERS).expect("they come last");
    let (_, tools) = tools.split_once("Further keys of a tool").expect("they are listed");
    let keys: Vec<&str> = tools
        .lines()
        .filter_map(|line| line.strip_prefix("#     "))
        .filter(|line| {
            ["task_su", "timeout", "kill_gr", "max_out", "heartb", "output ", "text_l"]
                .iter()
                .any(|k| line.starts_with(k))
        })
        .collect();
    assert_eq!(keys.len(), 7);
    let bare = "[[tool]]\nname = \"a\"\ncommand = [\"x\"]\n";
    assert_eq!(only_tool(&format!("{bare}{}", keys.join("\n"))), only_tool(bare));
}

/// The optional keys of a server, with the defaults given in the text.
#[test]
fn documented_server_defaults_are_the_defaults() {
    let (_, text) = FILE.split_once(SERVERS).expect("they follow the tools");
    let (_, text) = text.split_once("with their defaults:").expect("they are listed");
    let (of_all, text) = text.split_once("of a server by URL alone").expect("they are listed");
    let (by_url, _) = text.split_once("#     headers =").expect("they are listed");
    let keys = |text: &'static str| -> Vec<&str> {
        let lines = text.lines().filter_map(|line| line.strip_prefix("#     "));
        lines.filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase())).collect()
    };
    let bare = "[[server]]\nname = \"a\"\ncommand = [\"x\"]\n";
    let url = "[[server]]\nname = \"a\"\nurl = \"https://mcp.example.org/mcp\"\n";
    assert_eq!((keys(of_all).len(), keys(by_url).len()), (19, 5));
    // The places of a server follow those of own tools, unless they are given.
    let of_all = keys(of_all).into_iter().filter(|key| !key.starts_with("max_running"));
    let of_all = of_all.map(|key| (bare, key));
    for (bare, key) in of_all.chain(keys(by_url).into_iter().map(|key| (url, key))) {
        // `warm` has a meaning with one value of `share` only.
        let share = if key.starts_with("warm") { "share = \"call\"\n" } else { "" };
        let (with, without) = (format!("{bare}{share}{key}"), format!("{bare}{share}"));
        assert_eq!(good(&with).servers, good(&without).servers, "{key}");
    }
}

/// The places of a server: one identity has its share of those that are given.
#[test]
fn places_of_a_server_follow_the_workers() {
    for (keys, max, per_identity) in [
        ("", None, None),
        ("max_running = 16", Some(16), Some(14)),
        ("max_running_per_identity = 3", None, Some(3)),
        ("max_running = 2\nmax_running_per_identity = 1", Some(2), Some(1)),
    ] {
        let text = format!("[[server]]\nname = \"a\"\ncommand = [\"x\"]\n{keys}");
        assert_eq!(good(&text).servers[0].places, ServerPlaces { max, per_identity }, "{keys}");
    }
}

/// The optional keys of an agent, with the defaults given in the text, and its example.
#[test]
fn documented_defaults_and_example_of_an_agent_work() {
    let (_, text) = FILE.split_once(AGENTS).expect("they come last");
    let lines = |text: &'static str| text.lines().filter_map(|line| line.strip_prefix("#     "));
    let (example, text) = text.split_once("with their defaults:").expect("they are listed");
    let example: Vec<&str> = lines(example).collect();
    assert_eq!(good(&example.join("\n")).agents.len(), 1);
    let (text, _) = text.split_once("without a default:").expect("they are listed");
    let keys: Vec<&str> =
        lines(text).filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase())).collect();
    assert_eq!(keys.len(), 10, "{keys:?}");
    let bare = "[[agent]]\nname = \"a\"\ncommand = [\"x\"]\n";
    let with = format!("{bare}{}", keys.join("\n"));
    assert_eq!(good(&with).agents, good(bare).agents);
}

/// The example of a server.
#[test]
fn documented_example_of_a_server_works() {
    let (_, text) = FILE.split_once(SERVERS).expect("they come last");
    let start = text.find("#     [[server]]").expect("the example");
    let example: Vec<&str> = text
        .get(start..)
        .expect("a position")
        .lines()
        .map_while(|line| line.strip_prefix("#     "))
        .collect();
    let config = good(&example.join("\n"));
    assert_eq!(config.servers.len(), 1);
    assert_eq!(prefix_of(&config.servers[0], 1, &[]), "");
}

/// MCP's `Tool.inputSchema` of 2025-11-25, the strictest of the revisions.
#[test]
fn schemas_conform_to_mcp() {
    let mcp = serde_json::json!({
        "type": "object",
        "properties": {
            "$schema": { "type": "string" },
            "properties": { "type": "object", "additionalProperties": { "type": "object" } },
            "required": { "type": "array", "items": { "type": "string" } },
            "type": { "type": "string", "const": "object" }
        },
        "required": ["type"]
    });
    let rules = Arguments::new(&mcp.to_string()).expect("valid");
    for tool in good(FILE).tools {
        assert_eq!(rules.check(Some(tool.arguments.schema().get())), Ok(()), "{}", tool.name);
    }
}

/// Runs `count` as the daemon would, with descriptor 3 redirected to standard error.
#[test]
fn count_counts_and_reports_progress() {
    let config = good(FILE);
    let tool = config.tool("count").expect("there");
    let Run::Command(command) = &tool.run else { panic!("not a command") };
    let arguments = Some(r#"{"n":2,"pause":0}"#);
    let filled = command.template.fill(&tool.arguments, arguments).expect("filled");
    let output = std::process::Command::new("sh")
        .args(["-c", "exec \"$@\" 3>&2", "sh"])
        .args(&filled.argv)
        .output()
        .expect("it runs");
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stdout), "1\n2\n");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "1/2 counting\n2/2 counting\n");
}

#[test]
fn tree_grows_three_branches() {
    let config = good(FILE);
    let tool = config.tool("tree").expect("there");
    let Run::Command(command) = &tool.run else { panic!("not a command") };
    let filled = command.template.fill(&tool.arguments, Some(r#"{"seconds":1}"#)).expect("filled");
    let output = std::process::Command::new("sh")
        .args(["-c", "exec \"$@\" 3>&2", "sh"])
        .args(&filled.argv)
        .output()
        .expect("it runs");
    assert!(output.status.success());
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert_eq!(stdout.lines().filter(|line| line.contains("grandchild")).count(), 3, "{stdout}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "1/3 started\n2/3 started\n3/3 started\n");
}
