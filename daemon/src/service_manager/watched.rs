//! A whole server under a watchdog, with a slow store and with a hanging one.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::time::{Duration, Instant};

use super::{Notifier, Watchdog};
use crate::store::{Fault, Faults, Faulty, Memory};
use crate::{Daemon, HandlerTool, Job, TaskSupport, ToolResult};

/// Watchdog interval; half of it is the limit for a step of the store.
const GIVEN_MICROS: &str = "800000";
/// Less than half the interval.
const SLOW: Duration = Duration::from_millis(100);
/// More than the interval.
const HANGING: Duration = Duration::from_secs(4);
const TIME_LIMIT: Duration = Duration::from_secs(30);

struct Peer {
    reader: BufReader<UnixStream>,
    next: u64,
}

impl Peer {
    fn new(stream: UnixStream) -> Self {
        stream.set_read_timeout(Some(TIME_LIMIT)).unwrap();
        let mut peer = Self { reader: BufReader::new(stream), next: 0 };
        let hello = r#"{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}"#;
        let id = peer.ask("initialize", hello);
        peer.wait_for(id);
        peer.say(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        peer
    }

    fn say(&mut self, line: &str) {
        self.reader.get_mut().write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    fn ask(&mut self, method: &str, params: &str) -> u64 {
        self.next += 1;
        let id = self.next;
        self.say(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#
        ));
        id
    }

    fn wait_for(&mut self, id: u64) {
        let (mut line, wanted) = (String::new(), format!("\"id\":{id},"));
        while !line.contains(&wanted) {
            line.clear();
            assert!(
                self.reader.read_line(&mut line).unwrap() > 0,
                "the server closed the connection"
            );
        }
    }

    fn create_task(&mut self) {
        let id = self.ask("tools/call", r#"{"name":"quick","arguments":{},"task":{}}"#);
        self.wait_for(id);
    }
}

/// Counts the watchdog messages received so far.
fn alive_messages(manager: &UnixDatagram) -> usize {
    let mut bytes = [0; 256];
    let mut count = 0;
    while let Ok(length) = manager.recv(&mut bytes) {
        count += usize::from(bytes.get(..length).unwrap().starts_with(b"WATCHDOG=1\n"));
    }
    count
}

/// A slow store that makes progress keeps the watchdog alive; a hanging one silences it until it
/// makes progress again.
#[test]
fn hanging_store_silences_the_watchdog_and_slow_one_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_nonblocking(true).unwrap();
    let faults = Faults::default();
    let quick = HandlerTool::new("quick", |_: &Job| Ok(ToolResult::text("done")))
        .task_support(TaskSupport::Optional);
    let store = Faulty::new(Memory::new(), faults.clone());
    let mut server = Daemon::new().tool(quick.build().unwrap()).store(store).build().unwrap();
    let watchdog = Watchdog::asked_for(Some(GIVEN_MICROS), None, std::process::id());
    server.report_to(Notifier::to(Some(path.as_os_str())), watchdog);
    let remote = server.remote();
    let running = std::thread::spawn(move || server.run());
    let mut peer = Peer::new(remote.connect().unwrap());

    faults.set(Fault::Slow(SLOW));
    alive_messages(&manager);
    let begun = Instant::now();
    let mut heard = 0;
    // The store is always behind and never idle for long.
    while heard < 5 {
        assert!(begun.elapsed() < TIME_LIMIT, "silent while the store makes progress");
        peer.create_task();
        heard += alive_messages(&manager);
    }

    faults.set(Fault::Slow(HANGING));
    let asked = peer.ask("tools/call", r#"{"name":"quick","arguments":{},"task":{}}"#);
    // The loop keeps running, so the store silences the watchdog.
    let (mut silence, mut longest) = (Instant::now(), Duration::ZERO);
    let begun = Instant::now();
    while begun.elapsed() < HANGING {
        let ping = peer.ask("ping", "{}");
        peer.wait_for(ping);
        if alive_messages(&manager) > 0 {
            silence = Instant::now();
        }
        longest = longest.max(silence.elapsed());
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(longest > Duration::from_secs(1), "WATCHDOG=1 was sent although the store hangs");
    faults.set(Fault::None);
    peer.wait_for(asked);
    alive_messages(&manager);
    let begun = Instant::now();
    while alive_messages(&manager) == 0 {
        assert!(begun.elapsed() < TIME_LIMIT, "silent although the store works again");
        std::thread::sleep(Duration::from_millis(10));
    }
    remote.shut_down();
    running.join().unwrap().unwrap();
}
