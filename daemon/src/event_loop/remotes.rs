//! Execution of the engine's decisions about servers by URL: their connections, in this loop.

use std::io;
use std::sync::Arc;

use ceased_core::event::Event;
use ceased_core::identity::Identity;
use ceased_core::ids::{ConnId, InstanceId};
use ceased_core::time::Now;
use ceased_core::upstream::interface::UpstreamEvent;
use ceased_transports::http::client::Place;
use ceased_transports::{Flow, Link, Sent, Socket, Transport};

use super::server::Server;
use super::state::connections::Sending;
use super::state::read_scheduler::Cost;
use crate::event_loop::mailbox::Report;
use crate::remote::{Effect, Endpoint, Outgoing, Remote, SlotId, permitted, resolve};

/// Instances.
impl Server {
    /// Begins an instance of a server by URL. Nothing is connected before its first message.
    pub(super) fn start_remote(
        &mut self,
        now: Now,
        instance: InstanceId,
        endpoint: Arc<Endpoint>,
        owner: Option<Identity>,
    ) {
        let conn = self.connections.next_id();
        let message_bytes = self.settings.limits.frames.frame_bytes_max;
        self.remotes.insert(instance, conn, (endpoint, owner), message_bytes);
        let started = UpstreamEvent::Started { instance, conn };
        self.engine.handle(now, Event::Upstream(started), &mut self.actions);
    }

    /// Hands an input to an instance, and carries out its orders. False if there is none.
    pub(super) fn drive_remote(
        &mut self,
        now: Now,
        id: InstanceId,
        input: impl FnOnce(&mut Remote),
    ) -> bool {
        let Some(entry) = self.remotes.get_mut(id) else { return false };
        input(&mut entry.remote);
        loop {
            let Some(entry) = self.remotes.get_mut(id) else { return true };
            let (conn, effects) = (entry.conn, entry.remote.take_effects());
            if effects.is_empty() {
                break;
            }
            for effect in effects {
                self.carry_out_for_remote(now, (id, conn), effect);
            }
        }
        self.remotes.schedule(id);
        true
    }

    fn carry_out_for_remote(&mut self, now: Now, (id, conn): (InstanceId, ConnId), order: Effect) {
        match order {
            Effect::Open(slot) => self.begin_connect(now, id, slot),
            Effect::Write(slot) => {
                if let Some(conn) = self.remotes.conn_of(id, slot) {
                    self.connections.note_output(conn, Sending::More);
                }
            }
            Effect::Close(slot) => {
                if let Some(conn) = self.remotes.close(id, slot) {
                    let _ = self.connections.remove(self.poll.registry(), conn);
                }
            }
            Effect::Frame(frame) => {
                let event = Event::Frame { conn, frame: &frame };
                self.engine.handle(now, event, &mut self.actions);
            }
            Effect::News(news) => {
                let event = UpstreamEvent::Remote { instance: id, news };
                self.engine.handle(now, Event::Upstream(event), &mut self.actions);
            }
            Effect::AskForToken => self.ask_for_token(now, id),
            Effect::Over => {
                self.remotes.remove(id);
                let ended = UpstreamEvent::Ended { instance: id, status: "", stderr: "" };
                self.engine.handle(now, Event::Upstream(ended), &mut self.actions);
            }
        }
    }

    /// Hands the messages of the engine to an instance.
    pub(super) fn send_to_remote(&mut self, now: Now, conn: ConnId, id: InstanceId) {
        let Some(queue) = self.engine.send_queue(conn) else { return };
        let messages = queue.frames().filter_map(|(_, frame)| Outgoing::read(frame));
        let mut messages: Vec<Outgoing> = messages.collect();
        let all = queue.len();
        queue.advance(all);
        queue.release();
        for message in &mut messages {
            if let Some(tool) = message.tool() {
                let mirrors = self.engine.mirrors(conn, tool);
                message.mirror(mirrors);
            }
        }
        self.drive_remote(now, id, |remote| {
            messages.into_iter().for_each(|message| remote.send(message, now.at));
        });
    }

    /// Takes the steps of instances that are due.
    pub(super) fn take_remote_time(&mut self, now: Now) {
        for id in self.remotes.take_due(now.at) {
            self.drive_remote(now, id, |remote| remote.tick(now.at));
        }
    }
}

/// Connections.
impl Server {
    /// Looks up the server, or connects to it at once.
    fn begin_connect(&mut self, now: Now, id: InstanceId, slot: SlotId) {
        let Some(entry) = self.remotes.get_mut(id) else { return };
        let endpoint = Arc::clone(&entry.endpoint);
        match &endpoint.url.place {
            Place::Unix(path) => {
                let socket = Socket::connect_unix(path);
                let socket = socket.map(|it| Box::new(it) as Box<dyn Transport>);
                self.connected(now, (id, slot), socket);
            }
            Place::Tcp { host, port, .. } => {
                let reports = self.reports.clone();
                let tell = move |found| {
                    reports.send(Report::Resolved { instance: id, slot, found });
                };
                let found = match endpoint.route.proxy() {
                    Ok(None) => resolve((host, *port), self.remotes.lookups(), tell),
                    Ok(Some(it)) => resolve((&it.host, it.port), self.remotes.lookups(), tell),
                    Err(why) => Some(Err(why)),
                };
                if let Some(found) = found {
                    self.take_addresses(now, (id, slot), found);
                }
            }
        }
    }

    /// The addresses of a server are known.
    pub(super) fn take_addresses(
        &mut self,
        now: Now,
        (id, slot): (InstanceId, SlotId),
        found: Result<Vec<std::net::SocketAddr>, String>,
    ) {
        let Some(entry) = self.remotes.get_mut(id) else { return };
        let Place::Tcp { host, .. } = &entry.endpoint.url.place else { return };
        // The address of a proxy is named by the environment; it looks up the host.
        let is_proxied = matches!(entry.endpoint.route.proxy(), Ok(Some(_)));
        let may_be_private = entry.endpoint.allow_private || is_proxied;
        match found.and_then(|found| permitted(host, found, may_be_private)) {
            Ok(found) => {
                if self.remotes.note_addresses((id, slot), found) {
                    self.try_next_address(now, (id, slot), None);
                }
            }
            Err(why) => {
                self.drive_remote(now, id, |remote| remote.closed(slot, Some(&why), now.at));
            }
        }
    }

    /// Connects to the next address of a server; without one, the connection is lost.
    fn try_next_address(
        &mut self,
        now: Now,
        (id, slot): (InstanceId, SlotId),
        mut lost: Option<String>,
    ) {
        while let Some(address) = self.remotes.next_address((id, slot)) {
            let Some(entry) = self.remotes.get_mut(id) else { return };
            match transport_to(address, &entry.endpoint) {
                Ok(transport) => return self.connected(now, (id, slot), Ok(transport)),
                Err(why) => lost = Some(format!("{address}: {why}")),
            }
        }
        let why = lost.unwrap_or_else(|| "it has no further address".to_owned());
        self.drive_remote(now, id, |remote| remote.closed(slot, Some(&why), now.at));
    }

    fn connected(
        &mut self,
        now: Now,
        (id, slot): (InstanceId, SlotId),
        transport: io::Result<Box<dyn Transport>>,
    ) {
        let frames = self.settings.limits.frames;
        let conn = transport.and_then(|transport| {
            let link = Link::new(transport, frames);
            self.connections.insert(self.poll.registry(), link, false)
        });
        match conn {
            Ok(conn) => {
                self.remotes.connect((id, slot), conn);
                self.connections.note_output(conn, Sending::More);
            }
            Err(why) => {
                let why = format!("cannot connect: {why}");
                self.drive_remote(now, id, |remote| remote.closed(slot, Some(&why), now.at));
            }
        }
    }

    /// Sends the output of a connection to a server.
    pub(super) fn send_remote(&mut self, now: Now, conn: ConnId, (id, slot): (InstanceId, SlotId)) {
        let Some(entry) = self.remotes.get_mut(id) else { return };
        let Some(output) = entry.remote.output(slot) else { return };
        let registry = self.poll.registry();
        let Some((sent, progress)) = self.connections.send_bytes(registry, conn, output) else {
            return;
        };
        if sent == Sent::Lost {
            // A read reports the loss, after the remaining input.
            self.connections.note_readable(conn);
        } else if progress && !self.connections.holds_output(conn) {
            self.drive_remote(now, id, |remote| remote.note_sent(slot, now.at));
        }
    }

    /// Reads a bounded amount from a connection to a server; returns its cost.
    pub(super) fn read_remote(
        &mut self,
        now: Now,
        conn: ConnId,
        (id, slot): (InstanceId, SlotId),
    ) -> Cost {
        let looked = Cost::reading(1, 0);
        let Some(entry) = self.remotes.get_mut(id) else { return looked };
        let remote = &mut entry.remote;
        let mut sink = |bytes: &[u8]| remote.receive(slot, bytes, now.at);
        let received = self.connections.receive_bytes(conn, now.at, &mut self.scratch, &mut sink);
        let Some((flow, cost)) = received else { return looked };
        let is_held = self.connections.holds_output(conn);
        self.drive_remote(now, id, |remote| {
            // The end of a handshake has sent the request.
            if !is_held && remote.is_handed_over(slot) {
                remote.note_sent(slot, now.at);
            }
        });
        match flow {
            Ok(Flow::Drained) => {}
            Ok(Flow::More) => self.connections.note_readable(conn),
            Ok(Flow::Finished) => self.end_remote_conn(now, conn, None),
            Err(lost) => self.end_remote_conn(now, conn, Some(lost.to_string())),
        }
        cost
    }

    /// A connection to a server is gone. False if it is none.
    pub(super) fn drop_remote(&mut self, now: Now, conn: ConnId) -> bool {
        let is_one = self.remotes.of_conn(conn).is_some();
        self.end_remote_conn(now, conn, None);
        is_one
    }

    fn end_remote_conn(&mut self, now: Now, conn: ConnId, why: Option<String>) {
        let Some((id, slot)) = self.remotes.of_conn(conn) else { return };
        let is_fresh = self.remotes.get_mut(id).is_some_and(|entry| entry.remote.is_fresh(slot));
        if is_fresh {
            let _ = self.connections.remove(self.poll.registry(), conn);
            self.remotes.forget_conn(conn);
            return self.try_next_address(now, (id, slot), why);
        }
        self.drive_remote(now, id, |remote| remote.closed(slot, why.as_deref(), now.at));
    }
}

/// A connection to an address that is being made, below TLS or not.
fn transport_to(
    address: std::net::SocketAddr,
    endpoint: &Endpoint,
) -> io::Result<Box<dyn Transport>> {
    let socket = Socket::connect_tcp(address)?;
    match &endpoint.url.place {
        Place::Tcp { host, port, is_tls: true } => {
            match endpoint.route.tunnel(socket, (host, *port)) {
                Ok(below) => over_tls(below, endpoint, host),
                Err(below) => over_tls(below, endpoint, host),
            }
        }
        Place::Tcp { .. } | Place::Unix(_) => Ok(Box::new(socket)),
    }
}

#[cfg(feature = "tls")]
fn over_tls<T: Transport + 'static>(
    below: T,
    endpoint: &Endpoint,
    host: &str,
) -> io::Result<Box<dyn Transport>> {
    let tls = endpoint.tls.as_ref().ok_or(io::ErrorKind::Unsupported)?;
    let tls = ceased_transports::tls::Tls::new(below, tls, host).map_err(io::Error::other)?;
    Ok(Box::new(tls))
}

#[cfg(not(feature = "tls"))]
fn over_tls<T>(_: T, _: &Endpoint, _: &str) -> io::Result<Box<dyn Transport>> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "this program speaks no TLS"))
}
