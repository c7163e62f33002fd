//! Pools of places for jobs that run: one for own tools, and one for each server.
//!
//! A slow or dead server holds places of its own pool alone: it keeps no call of another server waiting,
//! and no own tool. Jobs of all pools share the bound of those that wait.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::identity::Identity;
use crate::ids::JobId;
use crate::jobs::gates::{self, Gate};
use crate::jobs::job::Job;
use crate::jobs::queue::JobQueue;
use crate::limits::{Places, ServerPlaces};
use crate::tool::Tool;
use crate::upstream::route::Route;

/// The places of a server, and the jobs that wait for one or hold one.
#[derive(Debug)]
struct ServerPool {
    name: Box<str>,
    places: ServerPlaces,
    queue: JobQueue,
}

/// The gates of a job that has not begun.
fn gates_of(job: &Job) -> Vec<Gate> {
    job.arguments().map_or_else(Vec::new, |arguments| gates::of(&job.tool, arguments.get()))
}

/// The pools.
#[derive(Debug)]
pub(crate) struct Pools {
    /// The places for own tools.
    places: Places,
    own: JobQueue,
    /// Those of servers by name, sorted. An idle one goes when another one is made.
    servers: Vec<ServerPool>,
}

impl Pools {
    /// `places` are those for own tools.
    pub(crate) fn new(places: Places) -> Self {
        Self { places, own: JobQueue::default(), servers: Vec::new() }
    }

    /// Changes the places for own tools.
    pub(crate) const fn bound(&mut self, places: Places) {
        self.places = places;
    }

    fn find(&self, server: &str) -> Result<usize, usize> {
        self.servers.binary_search_by(|pool| (*pool.name).cmp(server))
    }

    /// The queue of a tool; `None` while no job of its server waits or runs.
    fn of(&self, tool: &Tool) -> Option<&JobQueue> {
        match &tool.route {
            None => Some(&self.own),
            Some(route) => Some(&self.servers[self.find(&route.server).ok()?].queue),
        }
    }

    fn of_mut(&mut self, tool: &Tool) -> Option<&mut JobQueue> {
        match &tool.route {
            None => Some(&mut self.own),
            Some(route) => {
                let at = self.find(&route.server).ok()?;
                Some(&mut self.servers[at].queue)
            }
        }
    }

    /// The places for jobs of a tool.
    fn places(&self, tool: &Tool) -> Places {
        tool.route.as_ref().map_or(self.places, |route| route.places.or(self.places))
    }

    /// The places for jobs of a tool, and how many of these jobs have begun, those that wait for an answer
    /// included.
    pub(crate) fn begun(&self, tool: &Tool) -> (usize, usize) {
        let begun = self.of(tool).map_or(0, |queue| queue.running() + queue.asking());
        (self.places(tool).max, begun)
    }

    /// How many more jobs of an identity find a place in the pool of a tool now.
    pub(crate) fn room_for(&self, tool: &Tool, owner: &Identity) -> usize {
        let places = self.places(tool);
        let Some(queue) = self.of(tool) else {
            return places.max.min(places.per_identity);
        };
        let own = places.per_identity.saturating_sub(queue.running_of(owner));
        places.max.saturating_sub(queue.running()).min(own)
    }

    /// Whether one more job like this one would wait for a place, or at a gate of its tool.
    pub(crate) fn would_wait(&self, job: &Job) -> bool {
        let Some(queue) = self.of(&job.tool) else { return false };
        let places = self.places(&job.tool);
        queue.is_crowded(places, &job.owner) || queue.would_wait(&gates_of(job))
    }

    /// Appends a job to the queue of its pool. The pool of a server has as many places as the newest
    /// of its jobs says, so that a reload changes them.
    pub(crate) fn push(&mut self, job: &Job) {
        let queue = match &job.tool.route {
            None => &mut self.own,
            Some(route) => {
                let at = self.find(&route.server).unwrap_or_else(|_| self.add(route));
                self.servers[at].places = route.places;
                &mut self.servers[at].queue
            }
        };
        queue.push(&job.owner, job.id, gates_of(job));
    }

    /// Adds the pool of a server, and returns its place.
    fn add(&mut self, route: &Route) -> usize {
        self.servers.retain(|pool| !pool.queue.is_idle());
        let at = self.find(&route.server).unwrap_or_else(|at| at);
        let (name, places) = (route.server.clone(), route.places);
        self.servers.insert(at, ServerPool { name, places, queue: JobQueue::default() });
        at
    }

    /// Takes out a job that waits.
    pub(crate) fn remove(&mut self, job: &Job) {
        if let Some(queue) = self.of_mut(&job.tool) {
            queue.remove(&job.owner, job.id);
        }
    }

    /// A job that was started is gone.
    pub(crate) fn end(&mut self, job: &Job) {
        if let Some(queue) = self.of_mut(&job.tool) {
            queue.end(&job.owner, job.id);
        }
    }

    /// A job that was started begins to wait for an answer, or has it.
    pub(crate) fn note_asking(&mut self, job: &Job, waits: bool) {
        match (self.of_mut(&job.tool), waits) {
            (Some(queue), true) => queue.note_asks(&job.owner),
            (Some(queue), false) => queue.note_answered(&job.owner),
            (None, _) => {}
        }
    }

    /// Takes out a job whose turn it is, and counts it as running.
    pub(crate) fn start(&mut self) -> Option<JobId> {
        let own = self.places;
        let of_servers =
            self.servers.iter_mut().find_map(|pool| pool.queue.start(pool.places.or(own)));
        of_servers.or_else(|| self.own.start(own))
    }

    /// Whether [`Pools::start`] would find a job.
    pub(crate) fn is_ready(&self) -> bool {
        let is_ready = |pool: &ServerPool| pool.queue.is_ready(pool.places.or(self.places));
        self.own.is_ready(self.places) || self.servers.iter().any(is_ready)
    }

    fn all(&self) -> impl Iterator<Item = &JobQueue> {
        core::iter::once(&self.own).chain(self.servers.iter().map(|pool| &pool.queue))
    }

    fn sum(&self, of: impl Fn(&JobQueue) -> usize) -> usize {
        self.all().map(of).sum()
    }

    /// Number of jobs that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.sum(JobQueue::len)
    }

    /// Number of jobs of one identity that wait.
    pub(crate) fn waiting_of(&self, owner: &Identity) -> usize {
        self.sum(|queue| queue.len_of(owner))
    }

    /// Number of jobs that run, without those that wait for an answer.
    pub(crate) fn running(&self) -> usize {
        self.sum(JobQueue::running)
    }

    /// Number of jobs of one identity that run in the pool of a tool.
    pub(crate) fn running_of(&self, tool: &Tool, owner: &Identity) -> usize {
        self.of(tool).map_or(0, |queue| queue.running_of(owner))
    }

    /// The places for jobs of a tool that the next turn goes by, for tests.
    pub(crate) fn places_now(&self, tool: &Tool) -> Places {
        let server = tool.route.as_ref().and_then(|route| self.find(&route.server).ok());
        server.map_or(self.places, |at| self.servers[at].places.or(self.places))
    }

    /// Whether a job waits for its turn.
    pub(crate) fn contains(&self, job: &Job) -> bool {
        self.of(&job.tool).is_some_and(|queue| queue.contains(&job.owner, job.id))
    }

    /// Number of jobs of own tools that run.
    pub(crate) const fn running_own(&self) -> usize {
        self.own.running()
    }

    /// Number of started jobs that wait for an answer.
    pub(crate) fn asking(&self) -> usize {
        self.sum(JobQueue::asking)
    }

    /// Number of started jobs of one identity that wait for an answer.
    pub(crate) fn asking_of(&self, owner: &Identity) -> usize {
        self.sum(|queue| queue.asking_of(owner))
    }

    /// The closed gate that a waiting job is at.
    pub(crate) fn closed_gate(&self, job: &Job) -> Option<&Gate> {
        self.of(&job.tool)?.closed_gate(job.id)
    }

    /// How many jobs of the same identity wait for a place of the same pool before this one. Those of
    /// others are not counted: no identity learns of another's jobs (TSK-39).
    pub(crate) fn before(&self, job: &Job) -> usize {
        self.of(&job.tool).map_or(0, |queue| queue.before(&job.owner, job.id))
    }

    /// Its own agreements, for tests.
    ///
    /// # Panics
    /// When one is broken.
    pub(crate) fn check(&self) {
        self.all().for_each(|queue| queue.check());
        assert!(self.servers.is_sorted_by_key(|pool| &pool.name), "pools are sorted");
    }
}
