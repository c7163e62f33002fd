//! The detailed status in the daemon's JSON format.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The detailed status. Missing members have defaults.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::cli) struct Status {
    pub(in crate::cli) server: String,
    pub(in crate::cli) version: String,
    pub(in crate::cli) identity: String,
    pub(in crate::cli) operator: bool,
    pub(in crate::cli) draining: bool,
    pub(in crate::cli) connections: u64,
    pub(in crate::cli) running: u64,
    /// Of the running ones, requests at servers, which use no worker.
    pub(in crate::cli) relayed: u64,
    /// Jobs that wait for an answer of their requestor.
    pub(in crate::cli) input_required: u64,
    pub(in crate::cli) queued: u64,
    pub(in crate::cli) cancelling: u64,
    pub(in crate::cli) jobs: Vec<Job>,
    pub(in crate::cli) tasks: BTreeMap<String, u64>,
    pub(in crate::cli) task_list: Vec<Task>,
    pub(in crate::cli) peers: Vec<Peer>,
    pub(in crate::cli) servers: Vec<Server>,
    pub(in crate::cli) agents: Vec<Agent>,
    pub(in crate::cli) host: Host,
    pub(in crate::cli) limits: BTreeMap<String, u64>,
    pub(in crate::cli) counters: BTreeMap<String, u64>,
}

impl Status {
    /// Hands the host's knowledge of each job to the job.
    pub(in crate::cli) fn join(mut self) -> Self {
        for job in &mut self.jobs {
            job.work = self.host.jobs.remove(&job.job).unwrap_or_default();
        }
        let fleet = self.host.fleet.iter_mut().flat_map(|fleet| fleet.tasks.drain(..));
        for task in fleet {
            if self.task_list.iter().all(|known| known.task != task.task) {
                self.task_list.push(task);
            }
        }
        self
    }

    /// Replaces user ids by names from `name_of`. Only for a local daemon: another machine has
    /// different users.
    pub(in crate::cli) fn name_users(&mut self, name_of: impl Fn(u32) -> Option<String>) {
        let mut known: BTreeMap<u32, Option<String>> = BTreeMap::new();
        let mut name = |identity: &str| {
            let uid = identity.strip_prefix("uid:")?.parse::<u32>().ok()?;
            known.entry(uid).or_insert_with(|| name_of(uid)).clone()
        };
        if let Some(name) = name(&self.identity) {
            self.identity = format!("{name} ({})", self.identity);
        }
        let of_jobs = self
            .jobs
            .iter_mut()
            .flat_map(|job| [Some(&mut job.identity), job.by.as_mut()].into_iter().flatten());
        let of_receipts = self.host.receipts.iter_mut();
        of_jobs
            .chain(self.task_list.iter_mut().map(|task| &mut task.identity))
            .chain(self.peers.iter_mut().map(|peer| &mut peer.identity))
            .chain(self.servers.iter_mut().flat_map(|server| {
                server.instances.iter_mut().filter_map(|instance| instance.identity.as_mut())
            }))
            .chain(self.agents.iter_mut().flat_map(|agent| {
                agent.clients.iter_mut().flat_map(|client| {
                    let by = client.requests.iter_mut().filter_map(|it| it.by.as_mut());
                    std::iter::once(&mut client.identity).chain(by)
                })
            }))
            .chain(of_receipts.flat_map(|receipt| [&mut receipt.identity, &mut receipt.by]))
            .chain(self.host.ended.iter_mut().map(|call| &mut call.identity))
            .for_each(|identity| {
                if let Some(name) = name(identity) {
                    *identity = name;
                }
            });
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::cli) struct Job {
    pub(in crate::cli) job: u64,
    pub(in crate::cli) tool: String,
    pub(in crate::cli) identity: String,
    pub(in crate::cli) connection: String,
    pub(in crate::cli) state: String,
    pub(in crate::cli) reason: String,
    pub(in crate::cli) by: Option<String>,
    pub(in crate::cli) said: Option<String>,
    pub(in crate::cli) step: String,
    pub(in crate::cli) cancelling_ms: u64,
    pub(in crate::cli) elapsed_ms: u64,
    pub(in crate::cli) progress: Option<f64>,
    pub(in crate::cli) total: Option<f64>,
    pub(in crate::cli) message: Option<String>,
    pub(in crate::cli) task: Option<String>,
    /// From [`Host::jobs`]: see [`Status::join`].
    #[serde(skip)]
    pub(in crate::cli) work: Work,
}

/// Arguments, output and usage of a job that runs; `None` if unknown.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::cli) struct Work {
    /// As `name=value`, without secrets.
    pub(in crate::cli) arguments: Option<String>,
    pub(in crate::cli) last_line: Option<String>,
    /// CPU time of its processes so far.
    pub(in crate::cli) cpu_ms: Option<u64>,
    /// CPU time lately, in percent of one CPU.
    pub(in crate::cli) cpu_percent: Option<u64>,
    pub(in crate::cli) memory_bytes: Option<u64>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::cli) struct Task {
    pub(in crate::cli) task: String,
    pub(in crate::cli) tool: String,
    pub(in crate::cli) identity: String,
    pub(in crate::cli) status: String,
    pub(in crate::cli) status_message: Option<String>,
    pub(in crate::cli) age_ms: u64,
    pub(in crate::cli) ttl_left_ms: Option<u64>,
    pub(in crate::cli) job: Option<u64>,
    /// The node of a fleet that runs it, if it is another one.
    pub(in crate::cli) node: Option<String>,
    /// How far its work at that node is; empty unless it was cancelled or has failed.
    pub(in crate::cli) work: String,
}

/// The daemons that share a table of tasks, and the newest tasks there.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::cli) struct Fleet {
    /// Name of this node.
    pub(in crate::cli) node: String,
    pub(in crate::cli) nodes: Vec<FleetMember>,
    pub(in crate::cli) tasks: Vec<Task>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::cli) struct FleetMember {
    pub(in crate::cli) name: String,
    pub(in crate::cli) state: String,
    pub(in crate::cli) tasks: u64,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::cli) struct Peer {
    pub(in crate::cli) connection: String,
    pub(in crate::cli) identity: String,
    pub(in crate::cli) protocol: String,
    pub(in crate::cli) elapsed_ms: u64,
    pub(in crate::cli) requests: u64,
    pub(in crate::cli) in_flight: u64,
    pub(in crate::cli) unsent_bytes: u64,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::cli) struct Host {
    /// The fleet that this daemon is a member of.
    pub(in crate::cli) fleet: Option<Fleet>,
    pub(in crate::cli) pid: u32,
    pub(in crate::cli) uptime_ms: u64,
    pub(in crate::cli) containment: String,
    /// `None` if unknown.
    pub(in crate::cli) survivors: Option<u64>,
    pub(in crate::cli) abandoned_threads: u64,
    pub(in crate::cli) audit_dropped: u64,
    /// `None` for a viewer that is no operator.
    pub(in crate::cli) cancel_to_death: Option<Durations>,
    pub(in crate::cli) call_time: Option<Durations>,
    pub(in crate::cli) queue_wait: Option<Durations>,
    pub(in crate::cli) store: Store,
    pub(in crate::cli) receipts: Vec<Receipt>,
    /// Calls that have ended, newest first, where they were asked for.
    pub(in crate::cli) ended: Vec<Ended>,
    pub(in crate::cli) processes: BTreeMap<u64, Vec<Process>>,
    pub(in crate::cli) instances: BTreeMap<u64, InstanceProcesses>,
    pub(in crate::cli) tokens: Vec<Token>,
    pub(in crate::cli) jobs: BTreeMap<u64, Work>,
}

/// The token of a server by URL.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::cli) struct Token {
    pub(in crate::cli) server: String,
    /// The identity that it is used for; `None` for all.
    pub(in crate::cli) identity: Option<String>,
    pub(in crate::cli) state: String,
    pub(in crate::cli) expires_in_ms: Option<u64>,
    pub(in crate::cli) why: Option<String>,
}

/// The store of tasks.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::cli) struct Store {
    pub(in crate::cli) kept: String,
    pub(in crate::cli) state: String,
    pub(in crate::cli) since: Option<String>,
    pub(in crate::cli) path: Option<String>,
    pub(in crate::cli) set_aside: Option<String>,
    pub(in crate::cli) tasks: Option<u64>,
    pub(in crate::cli) bytes: Option<u64>,
    pub(in crate::cli) last_error: Option<String>,
}

impl Store {
    /// Where tasks are kept, and whether new ones are taken.
    pub(in crate::cli) fn in_words(&self) -> String {
        let mut words = format!("{}, {}", self.kept, self.state);
        if let Some(since) = &self.since {
            words.push_str(&format!(" since {since}"));
        }
        if let Some(tasks) = self.tasks {
            words.push_str(&format!(", {tasks} tasks"));
        }
        if let Some(bytes) = self.bytes {
            words.push_str(&format!(", {} KiB", bytes / 1024));
        }
        if let Some(path) = &self.path {
            words.push_str(&format!(", {path}"));
        }
        if let Some(aside) = &self.set_aside {
            words.push_str(&format!("; a damaged one is at {aside}"));
        }
        if let Some(error) = &self.last_error {
            words.push_str(&format!("; last error: {error}"));
        }
        words
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::cli) struct Durations {
    pub(in crate::cli) count: u64,
    pub(in crate::cli) longest_ms: f64,
    /// `None` of none.
    pub(in crate::cli) p95_ms: Option<f64>,
}

/// A call that has ended, as in the audit log.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(in crate::cli) struct Ended {
    pub(in crate::cli) identity: String,
    pub(in crate::cli) job: u64,
    pub(in crate::cli) tool: String,
    pub(in crate::cli) outcome: String,
    pub(in crate::cli) exit_code: Option<i32>,
    pub(in crate::cli) signal: Option<i32>,
    pub(in crate::cli) duration_ms: u64,
    pub(in crate::cli) ended_ago_ms: u64,
    pub(in crate::cli) arguments: Option<String>,
    /// Of a call that was stopped.
    pub(in crate::cli) receipt: Option<Receipt>,
}

/// As in the audit log.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(in crate::cli) struct Receipt {
    pub(in crate::cli) identity: String,
    pub(in crate::cli) by: String,
    pub(in crate::cli) job: u64,
    pub(in crate::cli) tool: String,
    pub(in crate::cli) why: String,
    pub(in crate::cli) reason: Option<String>,
    pub(in crate::cli) stage: String,
    /// How the end of a relayed request is known.
    pub(in crate::cli) proof: Option<String>,
    /// The same as a sentence.
    pub(in crate::cli) end: Option<String>,
    /// `None` if they were not counted, as for a relayed request that a server was only told of.
    pub(in crate::cli) processes_ended: Option<u64>,
    /// `None` if processes outlast SIGKILL, or the end of the work is unknown.
    pub(in crate::cli) died_after_ms: Option<f64>,
    pub(in crate::cli) ended_ago_ms: u64,
    /// `None` if unknown.
    pub(in crate::cli) survivors: Option<u64>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::cli) struct Process {
    pub(in crate::cli) pid: i32,
    pub(in crate::cli) parent: i32,
    pub(in crate::cli) name: String,
    /// Resident memory.
    #[serde(default)]
    pub(in crate::cli) memory_bytes: u64,
}

/// An MCP server behind the daemon.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::cli) struct Server {
    pub(in crate::cli) server: String,
    pub(in crate::cli) prefix: String,
    pub(in crate::cli) share: String,
    pub(in crate::cli) state: String,
    /// `None` before its lists are known.
    pub(in crate::cli) tools: Option<u64>,
    pub(in crate::cli) last_error: Option<String>,
    /// Faults of its lists.
    #[serde(default)]
    pub(in crate::cli) warnings: Vec<String>,
    pub(in crate::cli) may_start_in_ms: Option<u64>,
    /// Counts are `None` for a viewer that is no operator.
    pub(in crate::cli) starts: Option<u64>,
    pub(in crate::cli) restarts: Option<u64>,
    pub(in crate::cli) deaths: Option<u64>,
    pub(in crate::cli) replaced: Option<u64>,
    pub(in crate::cli) strays_ended: Option<u64>,
    pub(in crate::cli) calls: Option<u64>,
    pub(in crate::cli) instances: Vec<Instance>,
}

/// A running instance of a server.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::cli) struct Instance {
    pub(in crate::cli) instance: u64,
    pub(in crate::cli) state: String,
    pub(in crate::cli) connection: Option<String>,
    pub(in crate::cli) identity: Option<String>,
    pub(in crate::cli) why: Option<String>,
    pub(in crate::cli) jobs: Vec<u64>,
    pub(in crate::cli) waiting: u64,
}

/// The processes of an instance.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::cli) struct InstanceProcesses {
    pub(in crate::cli) uptime_ms: u64,
    pub(in crate::cli) processes: Vec<Process>,
    pub(in crate::cli) skipped_lines: u64,
    pub(in crate::cli) first_skipped: Vec<String>,
    pub(in crate::cli) stderr: Vec<String>,
}

/// An ACP agent of the daemon.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::cli) struct Agent {
    pub(in crate::cli) agent: String,
    /// `None` if the configuration has it no more.
    pub(in crate::cli) max_instances: Option<u64>,
    pub(in crate::cli) clients: Vec<AgentClient>,
}

/// A client that has an agent.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::cli) struct AgentClient {
    pub(in crate::cli) connection: String,
    pub(in crate::cli) identity: String,
    pub(in crate::cli) state: String,
    pub(in crate::cli) elapsed_ms: u64,
    /// `None` before its first request, and between two processes.
    pub(in crate::cli) instance: Option<u64>,
    pub(in crate::cli) requests: Vec<AgentRequest>,
}

/// A request or turn that an agent works on.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::cli) struct AgentRequest {
    /// Number among the jobs; `None` for an older daemon.
    pub(in crate::cli) job: Option<u64>,
    /// Identity that cancelled it, if that was not its client.
    pub(in crate::cli) by: Option<String>,
    pub(in crate::cli) method: String,
    /// Id of a tool call or terminal.
    pub(in crate::cli) object: Option<String>,
    pub(in crate::cli) state: String,
    /// Cause of waiting.
    pub(in crate::cli) waiting: Option<String>,
    pub(in crate::cli) elapsed_ms: u64,
}
