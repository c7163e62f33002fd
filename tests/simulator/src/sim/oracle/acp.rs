//! ACP: a cancelled request is answered nevertheless, once (ACP-06), and its requests to others are
//! cancelled with it (ACP-05, ACP-09).

use ceased_core::acp::protocol::{AcpForm, AcpRole, HostStopReason, Speaker};
use ceased_core::event::Outcome;
use serde_json::Value;

use super::calls::Wanted;
use super::requests::Asked;
use super::{Ended, For, Job, Oracle, Stage, nanos};
use crate::sim::dialects;
use crate::sim::mark::Mark;
use crate::slow::{self, Id};

/// Relation of the two sides of an ACP connection.
#[derive(Debug, Clone, Copy)]
pub(in crate::sim) struct Party {
    published: bool,
    agent: bool,
    ours: bool,
    theirs: bool,
    /// `initialize` was answered with a result.
    exchanged: bool,
}

impl Party {
    /// ACP-03: whether a cancel may be sent.
    pub(super) const fn may_cancel(self) -> bool {
        self.published || (self.exchanged && self.theirs)
    }

    /// ACP-10: whether a cancel is heeded.
    const fn heeds_cancels(self) -> bool {
        self.published || (self.exchanged && self.ours)
    }

    /// How a cancel is spelt (ACP-01).
    pub(super) const fn spelling(self) -> &'static str {
        if self.published { "$/cancel_request" } else { "$/cancelRequest" }
    }

    /// The answer to a cancelled request; the canceller if it is not its sender (ACP-07).
    pub(super) fn cancelled(self, why: &str) -> String {
        let says = if self.published { "Request cancelled" } else { "Cancelled" };
        let source = match why {
            "Requested" => return format!("E -32800 {says}"),
            "TimedOut" => "timeout",
            "Disconnected" => "disconnect",
            "Feature" => "feature",
            "Limit" => "limit",
            "Host" => "host",
            "Shutdown" => "shutdown",
            other => unreachable!("a request of ACP is not stopped for {other}"),
        };
        format!("E -32800 {says} {source}")
    }
}

/// Whether a job that is stopped for this may still give its answer as if it were not.
pub(super) fn is_no_cancel(why: &str) -> bool {
    matches!(why, "LeftBehind" | "Feature")
}

/// ACP-02: exactly `cancellation: {request: true}` declares it.
fn declares(holder: &Value, who: &str) -> bool {
    let said = holder.get(who).and_then(|said| said.get("cancellation"));
    said.is_some_and(|said| said.is_object() && said["request"] == true)
}

fn parse(text: Option<&str>) -> Value {
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or(Value::Null)
}

impl Oracle {
    pub(super) fn open_acp(&mut self, conn: u64, identity: &str, form: AcpForm, side: AcpRole) {
        self.open(conn, identity, ceased_core::protocol::role::Role::Server);
        let party = Party {
            published: form == AcpForm::Published,
            agent: side == AcpRole::Agent,
            ours: false,
            theirs: false,
            exchanged: false,
        };
        let entry = self.conns.get_mut(&conn).expect("it was opened");
        (entry.acp, entry.rules) = (Some(party), Some(&dialects::ACP));
    }

    pub(super) fn party(&self, conn: u64) -> Option<Party> {
        self.conns.get(&conn)?.acp
    }

    fn party_as(&mut self, conn: u64, agent: bool) -> Option<&mut Party> {
        self.conns.get_mut(&conn)?.acp.as_mut().filter(|party| party.agent == agent)
    }

    pub(super) fn service(&mut self, asked: Asked, method: &str, params: Option<&str>) {
        let party = self.party(asked.conn).expect("it speaks ACP");
        if self.is_draining() {
            return self.answer(&asked, &party.cancelled("Shutdown"));
        }
        let settings = std::sync::Arc::clone(&self.settings);
        let side = if party.agent { AcpRole::Agent } else { AcpRole::Client };
        let service = settings.acp.on(side).services.get(method);
        let Some(service) = service.filter(|_| !method.starts_with("$/")) else {
            self.mark(Mark::UnknownMethod);
            return self.answer(&asked, "E -32601");
        };
        let value = parse(params);
        if !value.is_object() {
            return self.answer(&asked, "E -32602");
        }
        self.mark(Mark::AcpServed);
        let jobs = self.jobs.len();
        self.admit(asked, service, &value, &Value::Null, None, None);
        // The declarations of an initialize count once it is answered with a result.
        let declares = method == "initialize" && declares(&value, "clientCapabilities");
        if let Some(job) = self.jobs.get_mut(jobs) {
            job.declares = declares;
        }
    }

    /// A notification of an ACP peer.
    pub(super) fn notified_acp(&mut self, conn: u64, method: &str, params: Option<&str>) {
        let members: &[&str] = match method {
            "$/cancel_request" => &["requestId"],
            "$/cancelRequest" => &["requestId", "id"],
            _ => &[],
        };
        if !members.is_empty() {
            return self.cancelled_acp(conn, members, params);
        }
        let Some(party) = self.party(conn) else { return };
        let side = if party.agent { AcpRole::Agent } else { AcpRole::Client };
        if self.settings.acp.on(side).notifications.contains(method) {
            self.order(format!("notified c{conn} {method} {}", params.unwrap_or("-")));
        }
    }

    fn cancelled_acp(&mut self, conn: u64, members: &[&str], params: Option<&str>) {
        let named = members.iter().find_map(|member| slow::member(params?, member));
        let value = params.map_or(Value::Null, slow::value);
        let is_null = members.iter().any(|member| value.get(member) == Some(&Value::Null));
        let id = match named {
            Some(id) => slow::read_id(&id),
            None => is_null.then_some(Id::Null),
        };
        let Some(id) = id else { return self.mark(Mark::MalformedCancel) };
        if !self.party(conn).is_some_and(Party::heeds_cancels) {
            return self.mark(Mark::CancelNotHeeded);
        }
        let whose = For::Request(id);
        let job = self.jobs.iter().find(|job| job.conn == conn && job.whose == whose);
        let cancellable = job.filter(|job| {
            let cancelled = matches!(job.stage, Stage::Stopping { why, .. } if !is_no_cancel(why));
            // ACP-04
            job.tool != "initialize" && !cancelled
        });
        match cancellable.map(|job| job.nonce) {
            Some(nonce) => self.withdraw(nonce, "Requested"),
            None => self.mark(Mark::IgnoredCancel),
        }
    }

    pub(super) fn cancel_job(&mut self, nonce: u64, cause: HostStopReason) {
        self.mark(Mark::HostCancels);
        self.withdraw(
            nonce,
            match cause {
                HostStopReason::Feature => "Feature",
                HostStopReason::Limit => "Limit",
                HostStopReason::Host => "Host",
            },
        );
    }

    /// Cancels a job whose request is answered nevertheless.
    fn withdraw(&mut self, nonce: u64, why: &'static str) {
        let Some(job) = self.job(nonce) else { return };
        if job.stage != Stage::Queued {
            return self.stop(nonce, why);
        }
        job.stage = Stage::Stopping { step: "", why };
        self.mark(Mark::WithdrawnInQueue);
        self.done(nonce, &Outcome::Stopped);
    }

    /// The answer to a request of an ACP peer; nothing where its peer speaks another
    /// protocol.
    pub(super) fn answer_of_service(
        &mut self,
        job: &Job,
        outcome: &Outcome,
        why: Option<&str>,
    ) -> Option<String> {
        let party = self.party(job.conn)?;
        let cancel = why.filter(|why| !is_no_cancel(why));
        Some(match outcome {
            Outcome::Result(result) => {
                if cancel.is_some() {
                    self.mark(Mark::PartialResult);
                }
                if job.tool == "initialize" {
                    self.initialized_acp(job.conn, job.declares, result.get(), true);
                }
                let value: Value = serde_json::from_str(result.get()).expect("it is JSON");
                match value.pointer("/content/0/text").and_then(Value::as_str) {
                    Some(text) if value["isError"] == true => format!("R {text} bad"),
                    Some(text) => format!("R {text}"),
                    None => format!("[{}]", job.nonce),
                }
            }
            Outcome::Refused(_) => unreachable!("no simulated job is refused"),
            Outcome::Error(error) => {
                cancel.map_or_else(|| format!("E {}", error.code), |why| party.cancelled(why))
            }
            Outcome::Stopped => match why.filter(|why| *why != "LeftBehind") {
                Some(why) => party.cancelled(why),
                None => "E -32603".to_owned(),
            },
        })
    }

    /// `initialize` was answered: capabilities are exchanged (ACP-02). Its sender `declares` that
    /// it cancels.
    pub(super) fn initialized_acp(&mut self, conn: u64, declared: bool, result: &str, by_us: bool) {
        let agent = declares(&parse(Some(result)), "agentCapabilities");
        if let Some(party) = self.party_as(conn, by_us) {
            let (ours, theirs) = if by_us { (agent, declared) } else { (declared, agent) };
            (party.ours, party.theirs, party.exchanged) = (ours, theirs, true);
            self.mark(Mark::CapabilitiesExchanged);
        }
    }

    /// Whether our own `initialize` with these params declares that we cancel.
    pub(super) fn we_declare(params: Option<&str>) -> bool {
        declares(&parse(params), "clientCapabilities")
    }

    /// The first step to stop a job was not enough: its request is answered now (ACP-06).
    pub(super) fn end_grace(&mut self, nonce: u64, why: &str) {
        let Some(job) = self.job(nonce) else { return };
        let (conn, For::Request(id)) = (job.conn, job.whose.clone()) else { return };
        let Some(party) = self.party(conn).filter(|_| !is_no_cancel(why)) else { return };
        self.job(nonce).expect("it was there").whose = For::Nobody;
        self.mark(Mark::GraceOver);
        if let Some(asked) = self.take_pending(conn, &id) {
            self.answer(&asked, &party.cancelled(why));
        }
        self.close_if_finished(conn);
    }

    /// A request of ours is cancelled, and its one answer is waited for a while (ACP-03); whether
    /// that is how it is done there.
    pub(super) fn await_cancelled(&mut self, conn: u64, number: u64, wanted: Wanted) -> bool {
        let Some(party) = self.party(conn).filter(|party| party.may_cancel()) else { return false };
        let at = self.now.saturating_add(nanos(self.settings.limits.cancelled_wait));
        let calls = self.conns.get_mut(&conn).map(|entry| &mut entry.calls);
        let out = calls.and_then(|calls| calls.iter_mut().find(|out| out.number == number));
        let open = |out: &&mut super::Out| out.wanted == Wanted::Yes && out.method != "initialize";
        let Some(out) = out.filter(open) else { return false };
        (out.wanted, out.timer) = (wanted, Some(at));
        let call = out.call;
        self.mark(Mark::CancelAwaited);
        self.tell(conn, format!("{} {call}", party.spelling()));
        true
    }

    /// The host or a job tells a peer something.
    pub(super) fn notify(&mut self, from: Speaker, method: &str, params: Option<&str>) {
        let conn = match from {
            Speaker::Host(conn) => Some(conn.get()),
            Speaker::Job(id) => {
                let job = self.jobs.iter().find(|job| job.nonce == id.get());
                job.filter(|job| matches!(job.whose, For::Request(_))).map(|job| job.conn)
            }
        };
        let Some(conn) = conn.filter(|conn| self.party(*conn).is_some()) else { return };
        self.mark(Mark::Notified);
        self.tell(conn, format!("said {method} {}", params.unwrap_or("-")));
    }

    /// The answer to a request that is cut off; nothing where it has none.
    pub(super) fn cut_off(&self, conn: u64, token: &str, why: &str) -> Option<String> {
        let entry = self.conns.get(&conn)?;
        let open = !matches!(entry.ended, Ended::Closing { .. });
        let party = entry.acp.filter(|_| open)?;
        Some(format!("{token}:{}", party.cancelled(why)))
    }
}
