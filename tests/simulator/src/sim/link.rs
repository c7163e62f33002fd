//! A host's end of a connection: output on its way to the peer, and requests to the peer.

use std::collections::{BTreeMap, VecDeque};

use ceased_core::rpc::frame::Inbox;

use crate::slow::Id;

/// How many questions a peer remembers.
const QUESTIONS_MAX: usize = 16;

/// The host's end of a connection.
pub(super) struct Link {
    pub(super) inbox: Inbox,
    /// Bytes the peer takes at a time.
    pub(super) window: usize,
    /// The peer has closed its side.
    pub(super) finished: bool,
    pub(super) flush: bool,
    pub(super) blocked: bool,
    pub(super) closing: Option<bool>,
    /// Output of the engine that the peer was not given yet.
    pub(super) unsent: Unsent,
    /// Output that was never sent.
    pub(super) lost: Vec<String>,
    /// The last cursor this peer was given.
    pub(super) cursor: Option<String>,
    /// Requests to this peer.
    pub(super) questions: Questions,
}

impl Link {
    pub(super) fn new(inbox: Inbox) -> Self {
        Self {
            inbox,
            window: usize::MAX,
            finished: false,
            flush: false,
            blocked: false,
            closing: None,
            unsent: Unsent::default(),
            lost: Vec::new(),
            cursor: None,
            questions: Questions::default(),
        }
    }
}

/// One line that was written.
struct Line {
    bytes: VecDeque<u8>,
    /// Some of it was sent.
    begun: bool,
    /// The request whose cancel removes it (MOD-04), and its content.
    of: Option<(Id, String)>,
}

/// Frames written for a peer and not sent: the host's own book of a send queue.
#[derive(Default)]
pub(super) struct Unsent {
    lines: VecDeque<Line>,
    len: usize,
}

impl Unsent {
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) fn clear(&mut self) {
        self.lines.clear();
        self.len = 0;
    }

    /// Whole lines were written.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.len += bytes.len();
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            let bytes = line.iter().copied().collect();
            self.lines.push_back(Line { bytes, begun: false, of: None });
        }
    }

    /// The last lines were these, of which some can be taken back.
    pub(super) fn mark(&mut self, said: &[String], recallable: &[(String, Id)]) {
        let mut left: Vec<&(String, Id)> = recallable.iter().collect();
        let first = self.lines.len() - said.len();
        for (line, text) in self.lines.iter_mut().skip(first).zip(said) {
            if let Some(at) = left.iter().position(|(known, _)| known == text) {
                line.of = Some((left.remove(at).1.clone(), text.clone()));
            }
        }
    }

    /// A request is cancelled: its unsent messages never will be sent (MOD-04). Returns their
    /// content.
    pub(super) fn recall(&mut self, request: &Id) -> Vec<String> {
        let mut said = Vec::new();
        self.lines.retain(|line| match &line.of {
            Some((of, text)) if !line.begun && of == request => {
                said.push(text.clone());
                false
            }
            Some(_) | None => true,
        });
        self.len = self.lines.iter().map(|line| line.bytes.len()).sum();
        said
    }

    /// The ids, as they stand on the wire, of requests whose answer is not sent and names an id
    /// that no other peer can name.
    pub(super) fn unnamed(&self) -> impl Iterator<Item = &str> {
        let answers = self.lines.iter().filter(|line| !line.begun);
        let texts = answers.filter_map(|line| line.of.as_ref().map(|(_, text)| text));
        texts.filter_map(|text| {
            let (token, rest) = text.split_once(':')?;
            ["task #", "input_required #"]
                .iter()
                .any(|start| rest.starts_with(start))
                .then_some(token)
        })
    }

    /// Unsent frames, or parts of them, that can be taken back.
    pub(super) fn texts(&self) -> impl Iterator<Item = String> {
        self.lines.iter().filter_map(|line| line.of.as_ref()).map(|(_, text)| text.clone())
    }

    /// These bytes were sent.
    ///
    /// # Panics
    /// When they differ from the written ones.
    pub(super) fn take(&mut self, bytes: &[u8]) {
        for byte in bytes {
            let line = self.lines.front_mut().expect("more is sent than was written");
            assert_eq!(
                line.bytes.pop_front(),
                Some(*byte),
                "something else is sent than was written"
            );
            line.begun = true;
            if line.bytes.is_empty() {
                let _ = self.lines.pop_front();
            }
        }
        self.len -= bytes.len();
    }
}

/// Requests to a peer that it may answer, the latest last; and the calls that wait for its retry.
#[derive(Default)]
pub(super) struct Questions {
    /// Questions in their order: the stand-in for the id, and the text.
    pub(super) asked: VecDeque<(u64, u64, String)>,
    count: u64,
    /// The numbers of calls it may come back for.
    pub(super) parked: VecDeque<u64>,
}

impl Questions {
    pub(super) fn push(&mut self, key: u64, text: &str) {
        self.count += 1;
        self.asked.push_back((self.count, key, text.to_owned()));
        if self.asked.len() > QUESTIONS_MAX {
            self.asked.pop_front();
        }
    }

    pub(super) fn park(&mut self, nonce: u64) {
        self.parked.push_back(nonce);
        if self.parked.len() > QUESTIONS_MAX {
            self.parked.pop_front();
        }
    }
}

/// Where the ids of requests of ours begin among the characters that are no bytes.
const CALLS: u32 = 0x1_0000;
const CALLS_MAX: u64 = 0x8_0000;
/// And those of calls that wait for a retry.
const STATES: u32 = 0x9_0000;
const STATES_MAX: u64 = 0x7_0000;

/// Names of things on the wire. In a step stands a character of its own for each, so
/// that leaving another step out does not change the meaning of a message.
#[derive(Default)]
pub(super) struct Calls {
    wires: BTreeMap<u64, u64>,
    names: BTreeMap<(u64, u64), u64>,
    states: BTreeMap<u64, String>,
}

impl Calls {
    pub(super) fn heard(&mut self, conn: u64, key: u64, wire: u64) {
        let before = self.names.insert((conn, wire), key / 4);
        assert!(before.is_none(), "c{conn} hears id {wire} twice");
        self.wires.insert(key % CALLS_MAX, wire);
    }

    pub(super) fn park(&mut self, nonce: u64, state: &str) {
        self.states.insert(nonce % STATES_MAX, state.to_owned());
    }

    pub(super) fn name(&self, conn: u64, wire: u64) -> String {
        let call = self.names.get(&(conn, wire));
        call.map_or_else(|| format!("?{wire}"), u64::to_string)
    }

    /// A connection is gone; its ids mean nothing any more.
    pub(super) fn forget(&mut self, conn: u64) {
        let of_conn = self.names.range((conn, 0)..=(conn, u64::MAX));
        let gone: Vec<(u64, u64)> = of_conn.map(|(key, _)| *key).collect();
        for key in gone {
            self.names.remove(&key);
        }
        // No answer comes to a question that is long over.
        while self.wires.len() > 4096 {
            self.wires.pop_first();
        }
        while self.states.len() > 4096 {
            self.states.pop_first();
        }
    }

    /// The bytes of a character of a step on the wire.
    pub(super) fn bytes_of(&self, c: char, bytes: &mut Vec<u8>) {
        let code = u32::from(c);
        let text = match code {
            STATES.. => {
                let state = self.states.get(&u64::from(code - STATES)).cloned();
                state.unwrap_or_else(|| "00000000-0000-4000-8000-000000000000".to_owned())
            }
            CALLS..STATES => {
                let wire = self.wires.get(&u64::from(code - CALLS)).copied();
                wire.unwrap_or_default().to_string()
            }
            _ => return bytes.push(u8::try_from(code).unwrap_or(b'?')),
        };
        bytes.extend_from_slice(text.as_bytes());
    }
}

/// The character in a step for the id of a request of ours.
pub(super) fn call_char(key: u64) -> char {
    char_at(CALLS, key % CALLS_MAX)
}

/// The character in a step for the state of a call that waits for its retry.
pub(super) fn state_char(nonce: u64) -> char {
    char_at(STATES, nonce % STATES_MAX)
}

fn char_at(from: u32, offset: u64) -> char {
    let code = u32::try_from(offset).ok().map(|offset| from + offset);
    code.and_then(char::from_u32).unwrap_or('?')
}
