//! A primary with a synchronous standby, and the loss of the primary.

use std::fs;
use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

use ceased_fleet::postgres::Session;

use super::{Server, directory, run, soon};

/// Two servers. The primary acknowledges a commit when the standby has it.
pub(crate) struct Pair {
    primary: Server,
    standby: Server,
}

impl Pair {
    /// Starts both; `None` where PostgreSQL is not installed.
    pub(crate) fn start() -> Option<Self> {
        let primary = Server::start()?;
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let standby = primary.standby(port);
        Some(Self { primary, standby })
    }

    /// The address of both, in this order for as long as they last.
    pub(crate) fn url(&self) -> String {
        let [one, other] = [&self.primary, &self.standby].map(|server| server.port);
        format!("postgres://ceased:sesame@127.0.0.1:{one},127.0.0.1:{other}/postgres")
    }

    /// Kills every process of the primary, and makes a primary of the standby.
    pub(crate) fn fail_over(&mut self) {
        self.primary.crash();
        std::mem::swap(&mut self.primary, &mut self.standby);
        run(self.primary.program("pg_ctl").args(["promote", "-D"]).arg(self.primary.data()));
    }

    /// Makes a synchronous standby in the place of the server that was killed.
    pub(crate) fn rebuild(&mut self) {
        self.standby = self.primary.standby(self.standby.port);
    }
}

impl Server {
    /// A standby of this one at a port, without which no commit is acknowledged from now on.
    fn standby(&self, port: u16) -> Self {
        let programs = self.programs.clone();
        let mut standby = Self { dir: directory(), programs, port, process: None, _template: None };
        let mut copy = self.program("pg_basebackup");
        copy.args(["--write-recovery-conf", "--checkpoint=fast", "--no-sync", "--username=ceased"]);
        copy.arg("-h").arg(self.dir.path()).arg("-p").arg(self.port.to_string());
        run(copy.arg("-D").arg(standby.data()));
        // As a primary it begins without a standby.
        let settings = standby.data().join("postgresql.auto.conf");
        let text = fs::read_to_string(&settings).unwrap();
        fs::write(&settings, text + "synchronous_standby_names = ''\n").unwrap();
        standby.run();
        let mut session = Session::open(&self.unix(), "", soon()).unwrap();
        session.script("ALTER SYSTEM SET synchronous_standby_names = '*'", soon()).unwrap();
        session.script("SELECT pg_reload_conf()", soon()).unwrap();
        let confirms = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
        let (deadline, mut count) = (soon(), None);
        while count.as_deref() != Some("1") {
            let rows = session.script(confirms, deadline).unwrap();
            count = rows[0].rows[0].text(0).unwrap().map(str::to_owned);
            std::thread::sleep(Duration::from_millis(5));
        }
        standby
    }

    /// Kills every process of it at once.
    fn crash(&mut self) {
        let Some(mut process) = self.process.take() else { return };
        let pid = process.id();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        let mut kill = Command::new("kill");
        // A child may end by itself meanwhile.
        kill.args(["-KILL", &pid.to_string()]).args(children.split_whitespace()).output().unwrap();
        process.wait().unwrap();
        // Its segment of shared memory, which a start in its directory would remove.
        let written = fs::read_to_string(self.data().join("postmaster.pid")).unwrap();
        let segment = written.lines().nth(6).and_then(|line| line.split_whitespace().nth(1));
        Command::new("ipcrm").args(["-m", segment.unwrap()]).output().unwrap();
    }
}
