//! The work of scripted servers, and the oracle's rules about their requests.

use std::collections::BTreeSet;
use std::time::Duration;

use ceased_core::identity::Identity;
use serde_json::{Value, json};

use super::Walk;
use super::site::{Place, Request, STREAM, Serving, chunk, marker, owner_text};

impl Walk {
    /// A server reads on a connection.
    pub(super) fn site_reads(&mut self, place: Place) {
        let Some(wire) = self.wires.get_mut(&place) else { return };
        let Some(request) = Request::take(&mut wire.to_site) else { return };
        assert!(wire.serving.is_none(), "REM-02: one connection for each running call");
        assert!(!request.path.contains("evil"), "REM-05: a redirect elsewhere is followed");
        let machine = &self.machines[&place.0];
        let (server, owner) = (machine.server, owner_text(machine.owner.as_ref()));
        if let Some(id) = request.body["id"].as_u64() {
            let session = request.header("mcp-session-id").to_owned();
            self.sites[server].arrived.insert((session, id));
        }
        if !self.takes_token(server, &owner, &request) {
            self.walked.note("token refused");
            return self.plain(place, 401, "", &json!({"error": "invalid_token"}));
        }
        match &*request.method {
            "GET" => self.get(place, server, &request),
            "DELETE" => {
                let is_accepted = !self.rng.once_in(3);
                if is_accepted {
                    self.sites[server].sessions.remove(request.header("mcp-session-id"));
                    self.oracle.ended += 1;
                }
                self.plain(place, if is_accepted { 200 } else { 405 }, "", &Value::Null);
            }
            _ => self.post(place, server, &owner, &request),
        }
    }

    /// Whether the token of a request is good, which is that of the identity of its instance.
    fn takes_token(&mut self, server: usize, owner: &str, request: &Request) -> bool {
        let token = request.header("authorization").strip_prefix("Bearer ");
        if let Some(user) = self.oracle.users.get(marker(&request.body)) {
            let of_user = Identity::User(*user).to_string();
            assert!(owner == of_user || owner == "all", "a call of another identity");
        }
        let site = &mut self.sites[server];
        if !site.has_tokens {
            assert_eq!(token, None, "there is no token");
            return true;
        }
        let Some((number, of)) = token.and_then(|token| token.split_once('.')) else {
            return false;
        };
        assert_eq!(of, owner, "REM-05: the token of another identity");
        if !self.is_calm && self.rng.once_in(150) {
            site.tokens_from = self.next + 1;
        }
        number.parse::<u64>().unwrap() >= site.tokens_from
    }

    fn get(&mut self, place: Place, server: usize, request: &Request) {
        let now = self.now.at;
        let site = &mut self.sites[server];
        assert!(!site.is_modern, "nothing is resumed without a session");
        let Some(serving) = site.kept.remove(request.header("last-event-id")) else {
            return self.plain(place, 405, "", &Value::Null);
        };
        assert_eq!(request.header("mcp-session-id"), serving.session, "REM-04");
        self.walked.note("resumed");
        let wire = self.wires.get_mut(&place).unwrap();
        wire.to_client.extend(STREAM.as_bytes());
        wire.serving = Some(Serving { has_head: true, since: now, ..serving });
    }

    fn post(&mut self, place: Place, server: usize, owner: &str, request: &Request) {
        let method = request.body["method"].as_str().unwrap_or_default().to_owned();
        if !self.is_calm && self.rng.once_in(60) {
            let is_near = self.rng.once_in(2);
            self.walked.note(if is_near { "redirected" } else { "redirected away" });
            let to = if is_near { "/mcp?near" } else { "http://other.test/evil" };
            return self.plain(place, 307, &format!("location: {to}\r\n"), &Value::Null);
        }
        let session = request.header("mcp-session-id").to_owned();
        let site = &mut self.sites[server];
        if site.is_modern {
            assert_eq!(session, "", "there is no session");
            assert_ne!(method, "notifications/cancelled", "REM-02: the stream is closed instead");
            if method != "initialize" {
                assert_eq!(request.header("mcp-protocol-version"), "2026-07-28");
                assert_eq!(request.header("mcp-method"), method);
            }
            return self.answer(place, server, &session, &method, &request.body);
        }
        match &*method {
            "initialize" => {
                assert_eq!(session, "", "REM-04: a session begins anew");
                let session = format!("s{}", self.number());
                let site = &mut self.sites[server];
                site.sessions.insert(session.clone(), BTreeSet::new());
                site.issued.insert(session.clone(), owner.to_owned());
                self.answer(place, server, &session, &method, &request.body);
            }
            "server/discover" => {
                let error = json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32000, "message": "no session"}});
                self.plain(place, 400, "", &error);
            }
            _ => {
                assert_eq!(site.issued.get(&session).map(String::as_str), Some(owner), "{method}");
                assert_eq!(request.header("mcp-protocol-version"), "2025-06-18");
                if !self.is_calm && self.rng.once_in(80) {
                    site.sessions.clear();
                }
                if !site.sessions.contains_key(&session) {
                    self.walked.note("forgotten");
                    return self.plain(place, 404, "", &Value::Null);
                }
                self.answer(place, server, &session, &method, &request.body);
            }
        }
    }

    fn answer(&mut self, place: Place, server: usize, session: &str, method: &str, body: &Value) {
        let is_modern = self.sites[server].is_modern;
        let result = match method {
            "initialize" if !is_modern => json!({"protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}),
            "server/discover" => json!({"resultType": "complete", "ttlMs": 0,
                "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}},
                "cacheScope": "private"}),
            "tools/list" => json!({"resultType": "complete", "tools": [
                {"name": "work", "inputSchema": {"type": "object"}},
                {"name": "again", "inputSchema": {"type": "object"},
                 "annotations": {"idempotentHint": true}}]}),
            "tools/call" => return self.begin_call(place, server, session, body),
            "notifications/cancelled" => return self.take_cancel(place, server, session, body),
            _ if body["id"].is_null() => return self.plain(place, 202, "", &Value::Null),
            _ => {
                let error = json!({"code": -32601, "message": "unknown"});
                let status = if is_modern { 400 } else { 200 };
                let answer = json!({"jsonrpc": "2.0", "id": body["id"], "error": error});
                return self.plain(place, status, "", &answer);
            }
        };
        let header = match session.is_empty() {
            true => String::new(),
            false => format!("mcp-session-id: {session}\r\n"),
        };
        self.plain(
            place,
            200,
            &header,
            &json!({"jsonrpc": "2.0", "id": body["id"], "result": result}),
        );
    }

    fn begin_call(&mut self, place: Place, server: usize, session: &str, body: &Value) {
        let (id, marker) = (body["id"].as_u64().unwrap(), marker(body).to_owned());
        let site = &mut self.sites[server];
        match site.sessions.get_mut(session) {
            Some(requests) => {
                assert!(requests.insert(id), "UPS-06: {body}");
            }
            None => assert!(site.seen.insert((place.0, id)), "UPS-06: {body}"),
        }
        let begun = self.oracle.begun.entry(marker.clone()).or_default();
        *begun += 1;
        if *begun > 1 {
            let is_repeatable = body["params"]["name"] == "again" && *begun == 2;
            assert!(is_repeatable, "REM-04: a call whose outcome is unknown is made again: {body}");
            self.walked.note("repeated");
        }
        let serving = Serving {
            id,
            marker,
            session: session.to_owned(),
            has_head: false,
            is_cancelled: false,
            is_long: !self.is_calm && self.rng.once_in(3),
            event: None,
            since: self.now.at,
        };
        self.wires.get_mut(&place).unwrap().serving = Some(serving);
    }

    /// REM-02: a cancel is for a request of its session that is over for its client, once.
    fn take_cancel(&mut self, place: Place, server: usize, session: &str, body: &Value) {
        if !self.is_calm && self.rng.once_in(6) {
            return self.plain(place, 500, "", &Value::Null);
        }
        let id = body["params"]["requestId"].as_u64().unwrap();
        let site = &mut self.sites[server];
        // A refusal of the request may cross its cancel.
        let request = (session.to_owned(), id);
        assert!(site.arrived.contains(&request), "REM-02: no such request: {body}");
        assert!(site.cancelled.insert(request), "REM-02: cancelled twice: {body}");
        let running = self.wires.values_mut().filter_map(|wire| wire.serving.as_mut());
        for serving in running.chain(site.kept.values_mut()) {
            if serving.id == id && serving.session == session {
                let is_over = self.oracle.over.contains(&serving.marker);
                // A call without a byte is given up by its instance.
                let is_late = self.now.at >= serving.since + Duration::from_secs(20);
                assert!(is_over || is_late, "REM-02: {} is wanted", serving.marker);
                serving.is_cancelled = true;
            }
        }
        self.oracle.told += 1;
        self.plain(place, 202, "", &Value::Null);
    }

    /// A server goes on with a call.
    pub(super) fn site_works(&mut self) {
        let busy = self.wires.iter().filter(|(_, wire)| wire.serving.is_some());
        let busy: Vec<Place> = busy.map(|(place, _)| *place).collect();
        if busy.is_empty() {
            return;
        }
        let place = *self.rng.pick(&busy);
        let serving = self.wires[&place].serving.as_ref().unwrap();
        let (is_cancelled, has_session) = (serving.is_cancelled, !serving.session.is_empty());
        let is_long = serving.is_long && !is_cancelled;
        match self.rng.below(12) {
            _ if self.is_calm => self.end_call(place, true),
            0 | 1 if is_long => self.send_event(place, None),
            0 | 1 => {
                if is_cancelled {
                    self.walked.note("late");
                }
                self.end_call(place, true);
            }
            3 if is_cancelled => self.end_call(place, false),
            4 | 5 => self.send_event(place, None),
            6 if has_session => {
                let event = format!("e{}", self.number());
                self.send_event(place, Some(event));
            }
            7 if self.rng.once_in(2) => self.cut(place),
            _ => {}
        }
    }

    /// A call ends, with an answer or without.
    fn end_call(&mut self, place: Place, is_answered: bool) {
        let as_json = self.rng.once_in(2);
        let wire = self.wires.get_mut(&place).unwrap();
        let serving = wire.serving.take().unwrap();
        let mut result = json!({"content": [{"type": "text", "text": serving.marker}]});
        if serving.session.is_empty() {
            result["resultType"] = "complete".into();
        }
        let answer = json!({"jsonrpc": "2.0", "id": serving.id, "result": result});
        if !serving.has_head && is_answered && as_json {
            return self.plain(place, 200, "", &answer);
        }
        let head = if serving.has_head { "" } else { STREAM };
        let event = if is_answered { chunk(&format!("data: {answer}\n\n")) } else { String::new() };
        wire.to_client.extend(format!("{head}{event}0\r\n\r\n").bytes());
    }

    fn send_event(&mut self, place: Place, id: Option<String>) {
        let now = self.now.at;
        let wire = self.wires.get_mut(&place).unwrap();
        let serving = wire.serving.as_mut().unwrap();
        let head = if serving.has_head { "" } else { STREAM };
        let note = json!({"jsonrpc": "2.0", "method": "notifications/message",
            "params": {"level": "info", "data": "x"}});
        let line = id.as_ref().map(|id| format!("id: {id}\nretry: 20\n")).unwrap_or_default();
        wire.to_client
            .extend(format!("{head}{}", chunk(&format!("{line}data: {note}\n\n"))).bytes());
        serving.has_head = true;
        serving.since = now;
        serving.event = id.or(serving.event.take());
    }

    /// A server, or a proxy, cuts the connection of a call. It can be resumed behind an event.
    fn cut(&mut self, place: Place) {
        self.walked.note("cut");
        let server = self.machines[&place.0].server;
        let wire = self.wires.get_mut(&place).unwrap();
        wire.is_cut = true;
        let serving = wire.serving.take().unwrap();
        if let Some(event) = serving.event.clone() {
            self.sites[server].kept.insert(event, serving);
        }
    }

    /// REM-02: the client closes a connection, whose call is over then.
    pub(super) fn client_closes(&mut self, place: Place) {
        let Some(wire) = self.wires.remove(&place) else { return };
        let Some(serving) = wire.serving else { return };
        let is_over = self.oracle.over.contains(&serving.marker);
        let is_late = self.now.at >= serving.since + Duration::from_secs(20);
        let is_ending = self.machines.get(&place.0).is_none_or(|machine| machine.is_ending);
        assert!(is_over || is_late || is_ending, "REM-02: {} is wanted", serving.marker);
    }

    fn plain(&mut self, place: Place, status: u16, headers: &str, body: &Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let length = body.len();
        let wire = self.wires.get_mut(&place).unwrap();
        let head = format!("HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n{headers}");
        wire.to_client.extend(format!("{head}content-length: {length}\r\n\r\n{body}").bytes());
    }
}
