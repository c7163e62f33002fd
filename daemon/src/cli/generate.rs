//! `ceased completions` and `ceased man`: generated from the definition of the command line.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use clap::CommandFactory as _;
use clap_complete::Shell;
use clap_complete::env::Shells;

use super::args::{Arguments, CompletionsArgs, ManArgs};
use super::{Exit, Failure, Io, completion};

/// `ceased completions`.
pub(super) fn completions(args: &CompletionsArgs, io: &mut Io<'_>) -> Result<Exit, Failure> {
    // Those of clap split words at = and :, or add a space after NAME=.
    let own = match args.shell {
        Shell::Bash => Some(include_str!("shells/ceased.bash")),
        Shell::Zsh => Some(include_str!("shells/ceased.zsh")),
        Shell::Elvish | Shell::Fish | Shell::PowerShell | _ => None,
    };
    if let Some(script) = own {
        io.out.write_all(script.as_bytes())?;
        return Ok(Exit::Done);
    }
    let shell = args.shell.to_string();
    let shells = Shells::builtins();
    let Some(shell) = shells.completer(&shell) else {
        return Err(Failure::new(Exit::Usage, format!("there is no completion for {shell}")));
    };
    let mut script = Vec::new();
    shell.write_registration(completion::VARIABLE, "ceased", "ceased", "ceased", &mut script)?;
    io.out.write_all(&script)?;
    Ok(Exit::Done)
}

/// `ceased man`: writes `ceased.1`, and `ceased-COMMAND.1` for every public command.
pub(super) fn man(args: &ManArgs) -> Result<Exit, Failure> {
    let dir = &args.dir;
    let fail = |path: &Path, why| {
        Failure::new(Exit::Failed, format!("cannot write {}: {why}", path.display()))
    };
    fs::create_dir_all(dir).map_err(|why| fail(dir, why))?;
    let mut command = Arguments::command().disable_help_subcommand(true);
    command.build();
    pages(&command, dir).map_err(|why| fail(dir, why))?;
    Ok(Exit::Done)
}

/// Writes the page of a command and those of its subcommands, each with the version of the program,
/// which clap sets only for the program itself.
fn pages(command: &clap::Command, dir: &Path) -> io::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        pages(below, dir)?;
    }
    let program = concat!("ceased ", env!("CARGO_PKG_VERSION"));
    let path = clap_mangen::Man::new(command.clone()).source(program).generate_to(dir)?;
    let name = command.get_name().strip_prefix("ceased-").unwrap_or(command.get_name());
    let mut page = fs::OpenOptions::new().append(true).open(path)?;
    page.write_all(further_sections(name).as_bytes())
}

/// Examples by command; a line that begins with `#` explains the next one.
const EXAMPLES: &[(&str, &str)] = &[
    (
        "ceased",
        "# Run the daemon, call a tool, show what runs\nceased serve &\nceased call test project=demo\nceased top",
    ),
    (
        "serve",
        "# A daemon with the configuration of this directory\nceased serve --config ./config.toml",
    ),
    ("stdio", "# The command of an MCP host\nclaude mcp add ceased -- ceased stdio"),
    (
        "connect",
        "# The command of an MCP host that shares the daemon of the user\nclaude mcp add ceased -- ceased connect --spawn",
    ),
    (
        "call",
        "# A call; Ctrl-C cancels it\nceased call test project=demo package=core\n# A number, a list\nceased call count n=30 tags:='[\"a\"]'\n# A task that goes on by itself\nceased call test project=demo --detach",
    ),
    ("tools", "# All tools, and the arguments of one\nceased tools\nceased tools test"),
    (
        "tasks",
        "ceased tasks\n# Ids of the tasks that failed\nceased tasks --json | jq -r '.[] | select(.status == \"failed\") | .taskId'",
    ),
    (
        "get",
        "# The beginning of an id is enough; so is the number of a job\nceased get 19c7f\nceased get job:7",
    ),
    ("result", "ceased result 19c7f --timeout 10m"),
    (
        "cancel",
        "# A task, a job, all jobs of a tool\nceased cancel 19c7f --reason 'not needed any more'\nceased cancel job:7\nceased cancel --tool test",
    ),
    ("watch", "# All tasks, until Ctrl-C\nceased watch"),
    ("status", "ceased status\nceased status --json | jq .running"),
    (
        "ps",
        "ceased ps\n# Memory of each job\nceased ps --json | jq '.host.jobs | map_values(.memoryBytes)'",
    ),
    (
        "top",
        "# On a wide terminal with arguments, CPU and memory in columns\nceased top --every 500ms",
    ),
    (
        "check",
        "# Validate a configuration, and list its tools\nceased check --config ./config.toml\nceased check --json | jq '.tools[].name'",
    ),
    (
        "logs",
        "# Output of a job while it runs, and of a task that has ended\nceased logs job:7 --follow\nceased logs 19c7f\n# The last ten minutes of a server\nceased logs git --since 10m",
    ),
    (
        "run",
        "# A command that ceased ends with all its processes; Ctrl-C cancels it\nceased run -- cargo test\n# As a task\nceased run --detach -- make all",
    ),
    (
        "servers",
        "# MCP servers behind the daemon, and the memory of each\nceased servers\nceased servers --json | jq '.servers[] | {server, state}'",
    ),
    (
        "login",
        "# Log in to a server by URL; over ssh without a browser\nceased login github\nceased login github --no-browser",
    ),
    ("logout", "# End the login, also at its authorization server\nceased logout github"),
    (
        "approve",
        "# Show the tools that differ from the approved ones, then approve what was shown\nceased approve git\nceased approve git --revision 1764370800000",
    ),
    ("restart", "# New processes for a server; calls under way are finished\nceased restart git"),
    (
        "import",
        "# The servers of a host as tables of the configuration\nceased import ~/.cursor/mcp.json >>~/.config/ceased/config.toml",
    ),
    ("reload", "# Read the configuration again\nceased reload"),
    (
        "view",
        "# The state of the daemon in a browser, with a cancel button for each job\nceased view",
    ),
    ("drain", "# Take no further work, and end with the work that there is\nceased drain"),
    (
        "fleet",
        "# The nodes that share one table of tasks, and its database\nceased fleet\n# Its tables, with a role that may create them\nceased fleet init --database postgres://postgres@db.example/ceased",
    ),
    ("stop", "# End the daemon and everything that it ran\nceased stop"),
    (
        "init",
        "# Tools of the project in this directory, for it alone\nceased init --project\n# Show them only\nceased init --print",
    ),
    (
        "wrap",
        "# An MCP server whose cancelled calls end\nceased wrap -- npx -y @modelcontextprotocol/server-everything",
    ),
    (
        "probe",
        "# How does this server cancel, end and clean up?\nceased probe -- npx -y @modelcontextprotocol/server-everything\n# Over HTTP, with a server that each check starts anew\nceased probe --url 'http://127.0.0.1:{port}/mcp' -- ./server --port '{port}'\n# In CI, with a call that takes long\nceased probe --tool build --args '{\"all\": true}' --junit probe.xml -- ./server\n# How does this agent end its turns?\nceased probe --acp --question-prompt 'Delete notes.txt.' -- ./agent\n# Does this client end its servers?\nceased probe --client -- node client.mjs {server}",
    ),
    (
        "trust",
        "# Offer the tools of ./ceased.toml, list trusted files\nceased trust\nceased trust --list",
    ),
    ("store", "# Verify the tasks on disk while no daemon runs\nceased store check"),
    ("store-check", "ceased store check --json"),
    (
        "adopt",
        "# Show the change, write it, take it back\nceased adopt ~/.cursor/mcp.json\nceased adopt ~/.cursor/mcp.json --write\nceased adopt ~/.cursor/mcp.json --undo --write",
    ),
    (
        "completions",
        "# For this shell, in ~/.bashrc or ~/.zshrc\nsource <(ceased completions bash)\n# For fish\nceased completions fish >~/.config/fish/completions/ceased.fish",
    ),
];

/// Files and variables that every command knows.
const FILES: &str = "\
.SH FILES\n\
.TP\n.I ~/.config/ceased/config.toml\nThe configuration of the user; see\n.BR ceased.toml (5).\n\
.TP\n.I /etc/ceased/config.toml\nThe configuration of the system.\n\
.TP\n.I /run/user/UID/ceased/ceased.sock\nThe socket of the daemon of a user.\n\
.TP\n.I /run/ceased/ceased.sock\nThe socket of the daemon of the system.\n\
.SH ENVIRONMENT\n\
.TP\n.B CEASED_CONFIG\nThe configuration, as with \\-\\-config.\n\
.TP\n.B CEASED_SOCKET\nThe socket of the daemon, as with \\-\\-socket.\n\
.TP\n.B CEASED_TOKEN\nThe token for \\-\\-tcp.\n\
.TP\n.B NO_COLOR\nNo colour on a terminal.\n\
.TP\n.B TZ\nThe time zone of the times that are shown.\n\
.SH SEE ALSO\n.BR ceased (1),\n.BR ceased.toml (5)\n";

/// Sections of a manual page that are not in the help text.
fn further_sections(command: &str) -> String {
    let example = EXAMPLES.iter().find(|(name, _)| *name == command);
    let mut sections = String::new();
    if let Some((_, lines)) = example {
        sections.push_str(".SH EXAMPLES\n");
        for line in lines.lines() {
            match line.strip_prefix("# ") {
                Some(text) => sections.push_str(&format!(".PP\n{text}:\n")),
                None => {
                    let line = line.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq");
                    sections.push_str(&format!(".PP\n.nf\n    {line}\n.fi\n"));
                }
            }
        }
    }
    sections.push_str(FILES);
    sections
}
