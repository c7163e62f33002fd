//! Time: deadlines in their order, and the end of everything.

use ceased_core::event::AfterInput;

use super::{Conn, Drain, Ended, Job, Keyed, Oracle, Out, nanos};
use crate::sim::mark::Mark;

/// A deadline; of two at the same moment the first goes first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    /// A job, by when its timer was armed.
    Job(u64, u64),
    /// A task, by when its timer was armed.
    Task(u64, u64),
    /// A peer that takes nothing, by when that was noticed.
    Stall(u64, u64),
    Linger(u64),
    /// A parked call, by when its timer was armed.
    Parked(u64, u64),
    /// A job whose connection is gone.
    Orphan(u64),
    /// Outcome of a call with a key, by its position among all there ever were.
    Keyed(u64),
    /// A request of ours, by its connection and its place among all there ever were.
    Call(u64, u64),
    /// A task at a peer, by the request that created it.
    Poll(u64, u64),
    Kill,
    End,
    /// A requestor that was told nothing for long, by when its timer was armed.
    Beat(u64, u64),
}

/// Every request of ours that may be overdue.
fn outs(conn: &Conn) -> impl Iterator<Item = &Out> {
    conn.calls.iter().chain(conn.remote.iter().map(|remote| &remote.out))
}

impl Oracle {
    fn timers(&self) -> impl Iterator<Item = (u64, Due)> {
        let of_conn = |pick: fn(&Conn) -> Option<u64>, due: fn(u64) -> Due| {
            self.conns.iter().filter_map(move |(at, conn)| pick(conn).map(|time| (time, due(*at))))
        };
        let drain = self.drain.as_ref();
        self.jobs
            .iter()
            .filter_map(|job| job.timer.map(|(at, armed)| (at, Due::Job(armed, job.nonce))))
            .chain(self.tasks.iter().map(|t| (t.timer.0, Due::Task(t.timer.1, t.nonce))))
            .chain(self.conns.iter().filter_map(|(conn, entry)| {
                entry.stall.map(|(at, number)| (at, Due::Stall(number, *conn)))
            }))
            .chain(of_conn(|conn| conn.linger, Due::Linger))
            .chain(self.parked.iter().map(|p| (p.timer.0, Due::Parked(p.timer.1, p.nonce))))
            .chain(self.jobs.iter().filter_map(|j| j.orphan.map(|at| (at, Due::Orphan(j.nonce)))))
            .chain(self.keyed.iter().filter_map(|k| k.timer().map(|at| (at, Due::Keyed(k.place)))))
            .chain(self.conns.iter().flat_map(|(at, conn)| {
                let timed = |out: &Out| out.timer.map(|due| (due, Due::Call(*at, out.number)));
                let polls = conn.remote.iter().filter_map(|remote| {
                    remote.poll_timer.map(|due| (due, Due::Poll(*at, remote.out.number)))
                });
                outs(conn).filter_map(timed).chain(polls).collect::<Vec<_>>()
            }))
            .chain(drain.and_then(|drain| drain.kill).map(|at| (at, Due::Kill)))
            .chain(drain.and_then(|drain| drain.end).map(|at| (at, Due::End)))
            .chain(self.jobs.iter().filter_map(|job| {
                job.beats.timer.map(|(at, armed)| (at, Due::Beat(armed, job.nonce)))
            }))
    }

    /// When the engine must be woken.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        let of_job = |job: &Job| {
            [job.timer.map(|(at, _)| at), job.orphan, job.beats.timer.map(|(at, _)| at)]
        };
        let jobs = self.jobs.iter().flat_map(of_job).flatten();
        let keyed = self.keyed.iter().filter_map(Keyed::timer);
        let tasks = self.tasks.iter().map(|task| task.timer.0);
        let stall = |conn: &Conn| conn.stall.map(|(at, _)| at);
        let conns = self.conns.values().flat_map(|conn| [stall(conn), conn.linger]).flatten();
        let drain = self.drain.iter().flat_map(|drain| [drain.kill, drain.end]).flatten();
        let parked = self.parked.iter().map(|parked| parked.timer.0);
        let calls = self.conns.values().flat_map(outs).filter_map(|out| out.timer);
        let remote = self.conns.values().flat_map(|conn| &conn.remote);
        let polls = remote.filter_map(|remote| remote.poll_timer);
        jobs.chain(keyed)
            .chain(tasks)
            .chain(conns)
            .chain(drain)
            .chain(parked)
            .chain(calls)
            .chain(polls)
            .min()
    }

    pub(super) fn tick(&mut self) {
        let mut first = true;
        while let Some((_, due)) = self.timers().filter(|(at, _)| *at <= self.now).min() {
            if matches!(due, Due::Stall(..)) && !first {
                break;
            }
            first = false;
            match due {
                Due::Job(_, nonce) => self.job_timer(nonce),
                Due::Task(_, nonce) => self.ttl_is_over(nonce),
                Due::Stall(_, conn) => {
                    self.conns.get_mut(&conn).expect("its timer was due").stall = None;
                    self.mark(Mark::Stalled);
                    self.close(conn, "Stalled", false);
                }
                Due::Linger(conn) => self.linger_is_over(conn),
                Due::Parked(_, nonce) => self.no_parked_retry_came(nonce),
                Due::Orphan(nonce) => self.no_retry_came(nonce),
                Due::Keyed(place) => self.forget_key(place),
                Due::Call(conn, number) => self.call_is_overdue(conn, number),
                Due::Poll(conn, number) => self.poll_is_due(conn, number),
                Due::Beat(_, nonce) => self.beat(nonce),
                Due::Kill => {
                    self.drain.as_mut().expect("its timer was due").kill = None;
                    self.kill_everything();
                }
                Due::End => {
                    let drain = self.drain.as_mut().expect("its timer was due");
                    (drain.end, drain.over) = (None, true);
                    self.mark(Mark::DrainTimedOut);
                }
            }
        }
    }

    fn linger_is_over(&mut self, conn: u64) {
        let now = self.now;
        let entry = self.conns.get_mut(&conn).expect("its timer was due");
        entry.linger = None;
        match entry.ended {
            Ended::No | Ended::Closing { .. } | Ended::Finished(AfterInput::Answer) => {}
            // Each period in which something was answered is followed by another.
            Ended::Finished(AfterInput::AnswerWithin(grace))
                if !grace.is_zero() && entry.pending.len() < entry.lingering =>
            {
                entry.lingering = entry.pending.len();
                entry.linger = Some(now + nanos(grace));
                self.mark(Mark::AnsweredLonger);
            }
            Ended::Finished(AfterInput::AnswerWithin(_)) => {
                let pending = std::mem::take(&mut entry.pending);
                self.mark(Mark::AnsweredNoLonger);
                let why = if pending.is_empty() { "Finished" } else { "Unanswered" };
                self.abandon_requests(conn, pending);
                self.close_if_finished_as(conn, why);
            }
            // Outside a session there is nothing a server may send unasked.
            Ended::Finished(AfterInput::AnswerAndProbe(_)) if entry.rules.is_none() => {}
            Ended::Finished(AfterInput::AnswerAndProbe(every)) => {
                entry.linger = Some(now + nanos(every));
                entry.probes += 1;
                let probe = entry.probes;
                self.mark(Mark::Probed);
                let name = self.party(conn).map_or(probe.to_string(), |_| "acp".to_owned());
                self.tell(conn, format!("probe {name}"));
            }
        }
    }

    pub(super) fn drained(&mut self, conn: u64) {
        if let Some(entry) = self.conns.get_mut(&conn) {
            entry.stall = None;
        }
        self.show_held(conn);
    }

    pub(super) fn drain(&mut self, by: u64) {
        // Asked a second time, the end only comes nearer.
        let earlier = self.drain.as_ref().and_then(|drain| drain.end);
        let by = earlier.map_or(by, |earlier| earlier.min(by));
        let kill = self.now + by.saturating_sub(self.now) / 4 * 3;
        let drain = self.drain.get_or_insert_default();
        if drain.said {
            return;
        }
        (drain.kill, drain.end, drain.tells) = (Some(kill), Some(by), true);
        self.mark(Mark::Drained);
        self.interrupt();
        self.drain.as_mut().expect("it was begun").tells = false;
        let conns: Vec<u64> = self.conns.keys().copied().collect();
        conns.into_iter().for_each(|conn| self.close_if_finished(conn));
    }

    /// The last thing of an event: nothing is left to wait for, or no time to wait.
    pub(super) fn exit_if_drained(&mut self) {
        let idle = self.jobs.iter().all(|job| job.outlasts);
        let ends = |drain: &&mut Drain| (idle || drain.over) && !drain.said;
        if let Some(drain) = self.drain.as_mut().filter(ends) {
            (drain.kill, drain.end, drain.said) = (None, None, true);
            self.order("exit".to_owned());
        }
    }
}
