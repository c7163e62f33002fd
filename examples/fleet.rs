//! Three daemons share one table of tasks behind haproxy: a task is begun at one, cancelled at another,
//! and one daemon is killed. Takes twenty seconds; needs the Debian packages postgresql and haproxy.
//!
//! ```sh
//! cargo run --example fleet
//! ```

use std::error::Error;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use ceased::config::Config;
use ceased::{Daemon, process};
use serde_json::{Value, json};

/// Longest wait for a start, an end, or a status.
const TIME_LIMIT: Duration = Duration::from_secs(60);
/// The token of the client, and its hash's name.
const TOKEN: &str = "a-token-of-the-example-0123456789abcdef";
const NODES: [&str; 3] = ["build-1", "build-2", "build-3"];
/// The chapter of the book, whose configuration of haproxy this runs.
const CHAPTER: &str = include_str!("../docs/src/operations/fleet.md");

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    process::guard::init();
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|word| word == "node") {
        let config = Config::load(Path::new(&arguments.next().ok_or("no configuration")?))?;
        return Ok(Daemon::from_config(&config).build()?.run()?);
    }
    let Some(programs) = postgres() else {
        return Err("PostgreSQL is not installed: apt-get install postgresql".into());
    };
    if Command::new("haproxy").arg("-v").stdout(Stdio::null()).status().is_err() {
        return Err("haproxy is not installed: apt-get install haproxy".into());
    }
    let dir = Scratch::new()?;
    println!("1. PostgreSQL, three daemons and haproxy, below {}", dir.0.display());
    let database = Database::start(&programs, &dir.0)?;
    let ports = [(); 4].map(|()| free_port());
    let mut nodes = Vec::new();
    for (name, port) in NODES.iter().zip(ports) {
        nodes.push(node(&dir.0, name, port?, &database.url)?);
    }
    let [first, second, third, front] = ports_of(&dir.0)?;
    let _balancer = balancer(&dir.0, [first, second, third], front)?;
    for port in [first, second, third, front] {
        until("they take requests", || ask(port, "server/discover", &json!({})).is_ok())?;
    }

    println!("\n2. a task is begun at build-1, and each node finds it");
    let mark = format!("8640{}", std::process::id());
    let task = begin(first, &mark)?;
    until("its process runs", || !work(&mark).is_empty())?;
    for (name, port) in NODES.iter().zip([first, second, third]) {
        println!("   {name} says: {}", status(port, &task)?);
    }

    println!("\n3. it is cancelled at build-2, and build-1 ends its process");
    let began = Instant::now();
    ask(second, "tasks/cancel", &json!({"taskId": task}))?;
    println!("   build-2 has answered after {:?}", began.elapsed());
    until("its process ends", || work(&mark).is_empty())?;
    println!("   its process is gone after {:?}", began.elapsed());
    println!("   build-1 says: {}, build-3 says: {}", status(first, &task)?, status(third, &task)?);

    println!("\n4. build-1 is killed while it runs a task");
    let task = begin(first, &mark)?;
    until("its process runs", || !work(&mark).is_empty())?;
    let began = Instant::now();
    nodes[0].0.kill()?;
    nodes[0].0.wait()?;
    until("its process ends", || work(&mark).is_empty())?;
    println!(
        "   its process is gone after {:?}; build-3 says: {}",
        began.elapsed(),
        status(third, &task)?
    );
    until("the task has failed", || status(third, &task).is_ok_and(|it| it == "failed"))?;
    println!("   the lease of 5 s is over after {:?}; build-3 says: failed", began.elapsed());
    let next = begin(front, &mark)?;
    println!("   haproxy sends the next task to a node that is there: {}", status(front, &next)?);
    ask(front, "tasks/cancel", &json!({"taskId": next}))?;
    until("its process ends", || work(&mark).is_empty())
}

/// The programs of the newest PostgreSQL of the machine.
fn postgres() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?.flatten();
    let programs = versions.map(|version| version.path().join("bin"));
    programs.filter(|programs| programs.join("initdb").exists()).max()
}

/// A directory that is removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Outcome<Self> {
        let path = std::env::temp_dir().join(format!("ceased-fleet-{}", std::process::id()));
        fs::create_dir(&path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o711))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A program that is killed at the end.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The database.
struct Database {
    url: String,
    process: Child,
}

impl Database {
    fn start(programs: &Path, dir: &Path) -> Outcome<Self> {
        let home = dir.join("postgresql");
        fs::create_dir(&home)?;
        // PostgreSQL refuses to run as root.
        let account = account()?;
        if let Some((user, group)) = account {
            chown(&home, Some(user), Some(group))?;
        }
        let program = |name: &str| {
            let path = programs.join(name);
            let Some((user, group)) = account else { return Command::new(path) };
            let mut command = Command::new("setpriv");
            let ids = [format!("--reuid={user}"), format!("--regid={group}")];
            command.args(ids).arg("--clear-groups").arg(path);
            command
        };
        let data = home.join("data");
        let mut create = program("initdb");
        create.args(["--username=ceased", "--auth=trust", "-D"]).arg(&data).current_dir(&home);
        let created = create.stdout(Stdio::null()).output()?;
        if !created.status.success() {
            return Err(format!("initdb: {}", String::from_utf8_lossy(&created.stderr)).into());
        }
        let port = free_port()?;
        let mut serve = program("postgres");
        serve.arg("-D").arg(&data).args(["-p", &port.to_string(), "-h", "127.0.0.1", "-k"]);
        serve.arg(&home).current_dir(&home).stdout(Stdio::null()).stderr(Stdio::null());
        let process = serve.spawn()?;
        let url = format!("postgres://ceased@127.0.0.1:{port}/postgres");
        let database = Self { url, process };
        until("PostgreSQL starts", || {
            let mut ready = program("pg_isready");
            ready.args(["-q", "-h", "127.0.0.1", "-p", &port.to_string()]);
            ready.status().is_ok_and(|status| status.success())
        })?;
        Ok(database)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // It ends its children, too.
        let _ = Command::new("kill").args(["-INT", &self.process.id().to_string()]).status();
        let _ = self.process.wait();
    }
}

/// The account of PostgreSQL, where this is root.
fn account() -> Outcome<Option<(u32, u32)>> {
    if fs::metadata("/proc/self")?.uid() != 0 {
        return Ok(None);
    }
    let accounts = fs::read_to_string("/etc/passwd")?;
    let line = accounts.lines().find(|line| line.starts_with("postgres:"));
    let fields: Vec<&str> = line.ok_or("there is no user postgres")?.split(':').collect();
    Ok(Some((fields[2].parse()?, fields[3].parse()?)))
}

/// A daemon of the fleet: this program again.
fn node(dir: &Path, name: &str, port: u16, database: &str) -> Outcome<Running> {
    let home = dir.join(name);
    fs::create_dir(&home)?;
    let tokens = home.join("tokens");
    fs::write(&tokens, format!("ann {TOKEN}\n"))?;
    fs::set_permissions(&tokens, fs::Permissions::from_mode(0o600))?;
    let config = home.join("config.toml");
    let text = format!(
        r#"[daemon]
state_dir = "state"

[[listen]]
transport = "http"
address = "127.0.0.1:{port}"
token_file = "tokens"

[fleet]
database = "{database}"
name = "{name}"
lease = "5s"

[[tool]]
name = "build"
command = ["sleep", "{{mark}}"]
run_as = "daemon"
task_support = "optional"
[tool.input.mark]
type = "string"
required = true
"#
    );
    fs::write(&config, text)?;
    fs::write(home.join("port"), port.to_string())?;
    let log = fs::File::create(home.join("log"))?;
    let child = Command::new(std::env::current_exe()?)
        .arg("node")
        .arg(&config)
        .current_dir(&home)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()?;
    Ok(Running(child))
}

/// The ports of the nodes, and one for haproxy.
fn ports_of(dir: &Path) -> Outcome<[u16; 4]> {
    let port = |name: &str| -> Outcome<u16> {
        Ok(fs::read_to_string(dir.join(name).join("port"))?.parse()?)
    };
    Ok([port(NODES[0])?, port(NODES[1])?, port(NODES[2])?, free_port()?])
}

/// haproxy with the configuration of the chapter, at other addresses.
fn balancer(dir: &Path, nodes: [u16; 3], front: u16) -> Outcome<Running> {
    let block = CHAPTER.split("```haproxy\n").nth(1).and_then(|rest| rest.split("```").next());
    let mut text = block.ok_or("the chapter has no configuration")?.to_owned();
    for (number, port) in (1..).zip(nodes) {
        text = text.replace(&format!("10.0.0.{number}:8080"), &format!("127.0.0.1:{port}"));
    }
    text = text.replace("bind :8080", &format!("bind 127.0.0.1:{front}"));
    let config = dir.join("haproxy.cfg");
    fs::write(&config, text)?;
    let quiet = Stdio::null;
    let mut command = Command::new("haproxy");
    command.arg("-db").arg("-f").arg(&config).stdout(quiet()).stderr(quiet());
    Ok(Running(command.spawn()?))
}

/// A request of 2026-07-28 over HTTP; its result.
fn ask(port: u16, method: &str, params: &Value) -> Outcome<Value> {
    let mut params = params.clone();
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "fleet", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities":
            {"extensions": {"io.modelcontextprotocol/tasks": {}}},
    });
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
    let named = params["name"].as_str().or(params["taskId"].as_str());
    let name = named.map(|name| format!("mcp-name: {name}\r\n")).unwrap_or_default();
    let request = format!(
        "POST /mcp HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nauthorization: Bearer {TOKEN}\r\n\
         content-type: application/json\r\naccept: application/json, text/event-stream\r\n\
         mcp-protocol-version: 2026-07-28\r\nmcp-method: {method}\r\n{name}\
         connection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(TIME_LIMIT))?;
    stream.write_all(request.as_bytes())?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    let (_, body) = response.split_once("\r\n\r\n").ok_or("no response")?;
    // Alone, in a chunk, or as the data of an event.
    let text = body.find("{\"jsonrpc\"").and_then(|start| body.get(start..)).ok_or("no answer")?;
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let answer = values.next().ok_or("no answer")??;
    match answer.get("result") {
        Some(result) => Ok(result.clone()),
        None => Err(answer["error"].to_string().into()),
    }
}

/// Begins a task that lasts long; returns its id.
fn begin(port: u16, mark: &str) -> Outcome<String> {
    let call = json!({"name": "build", "arguments": {"mark": mark}});
    let answer = ask(port, "tools/call", &call)?;
    let task = answer["taskId"].as_str().ok_or_else(|| format!("no task: {answer}"))?;
    Ok(task.to_owned())
}

fn status(port: u16, task: &str) -> Outcome<String> {
    let answer = ask(port, "tasks/get", &json!({"taskId": task}))?;
    Ok(answer["status"].as_str().unwrap_or("nothing").to_owned())
}

fn free_port() -> Outcome<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn until(what: &str, mut holds: impl FnMut() -> bool) -> Outcome<()> {
    let end = Instant::now() + TIME_LIMIT;
    while !holds() {
        if Instant::now() > end {
            return Err(format!("in vain: {what}").into());
        }
        sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Processes of the machine with the mark among their arguments.
fn work(mark: &str) -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let marked = entries.flatten().filter_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        (words.contains(&&b"sleep"[..]) && words.contains(&mark.as_bytes())).then_some(pid)
    });
    marked.collect()
}
