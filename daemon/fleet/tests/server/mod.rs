//! A PostgreSQL of the tests, below a temporary directory.

#[allow(dead_code, reason = "not every test needs it")]
pub(crate) mod standby;

use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use ceased_fleet::postgres::{Address, Session};
use tempfile::TempDir;

/// Removed with the last server that runs.
static TEMPLATE: Mutex<Weak<TempDir>> = Mutex::new(Weak::new());

/// A running server. Its role `ceased` has the password `sesame`; a role over the Unix socket needs none.
pub(crate) struct Server {
    dir: TempDir,
    programs: PathBuf,
    port: u16,
    process: Option<Child>,
    _template: Option<Arc<TempDir>>,
}

impl Server {
    /// Starts one; `None` where PostgreSQL is not installed, which is a failure with `CI` set.
    pub(crate) fn start() -> Option<Self> {
        let Some(programs) = programs() else {
            assert!(std::env::var_os("CI").is_none(), "with $CI set PostgreSQL has to be there");
            eprintln!("skipped: it needs the Debian package postgresql");
            return None;
        };
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut server = Self { dir: directory(), programs, port, process: None, _template: None };
        let template = server.template();
        run(Command::new("cp").arg("-a").arg(template.path().join("data")).arg(server.data()));
        server.run();
        Some(server)
    }

    /// A directory that each server of this program begins as a copy of.
    fn template(&mut self) -> Arc<TempDir> {
        let mut shared = TEMPLATE.lock().unwrap();
        let template = shared.upgrade().unwrap_or_else(|| Arc::new(self.create()));
        *shared = Arc::downgrade(&template);
        self._template = Some(Arc::clone(&template));
        template
    }

    fn create(&self) -> TempDir {
        let dir = directory();
        let password = dir.path().join("password");
        fs::write(&password, "sesame\n").unwrap();
        let mut create = self.program("initdb");
        create.args([
            "--username=ceased",
            "--auth-local=trust",
            "--auth-host=scram-sha-256",
            "--no-sync",
        ]);
        create.arg("--pwfile").arg(&password).arg("-D").arg(dir.path().join("data"));
        run(&mut create);
        dir
    }

    /// Starts the process, and waits until it takes connections.
    pub(crate) fn run(&mut self) {
        let mut serve = self.program("postgres");
        serve.arg("-D").arg(self.data()).arg("-p").arg(self.port.to_string());
        serve.arg("-k").arg(self.dir.path()).args(["-h", "127.0.0.1", "-c", "shared_buffers=16MB"]);
        serve.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.process = Some(serve.spawn().unwrap());
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let mut ready = self.program("pg_isready");
            ready.arg("-q").arg("-h").arg(self.dir.path()).arg("-p").arg(self.port.to_string());
            if ready.status().unwrap().success() {
                return;
            }
            assert!(Instant::now() < end, "PostgreSQL does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Its main process.
    #[allow(dead_code, reason = "not every test needs it")]
    pub(crate) fn pid(&self) -> i32 {
        self.process.as_ref().unwrap().id().cast_signed()
    }

    /// Its port on 127.0.0.1.
    #[allow(dead_code, reason = "not every test needs it")]
    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    /// Ends it at once, as a crash does.
    pub(crate) fn kill(&mut self) {
        let Some(mut process) = self.process.take() else { return };
        // It ends its children and itself, without a checkpoint.
        run(Command::new("kill").args(["-QUIT", &process.id().to_string()]));
        process.wait().unwrap();
    }

    /// Starts anew with TLS, by a certificate for `localhost` of an authority of its own; returns the
    /// authority's file.
    #[allow(dead_code, reason = "not every test needs it")]
    pub(crate) fn encrypt(&mut self) -> PathBuf {
        self.kill();
        let file = |name: &str| self.dir.path().join(name);
        let openssl = |arguments: &[&str]| {
            run(Command::new("openssl").args(arguments).current_dir(self.dir.path()));
        };
        let name = ["-subj", "/CN=authority of a test"];
        openssl(
            &[
                &[
                    "req",
                    "-x509",
                    "-newkey",
                    "ec",
                    "-pkeyopt",
                    "ec_paramgen_curve:P-256",
                    "-nodes",
                    "-keyout",
                    "ca.key",
                    "-out",
                    "ca.pem",
                    "-days",
                    "2",
                ],
                &name[..],
            ]
            .concat(),
        );
        openssl(&[
            "req",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-keyout",
            "server.key",
            "-out",
            "server.csr",
            "-subj",
            "/CN=localhost",
        ]);
        fs::write(file("names"), "subjectAltName=DNS:localhost").unwrap();
        openssl(&[
            "x509",
            "-req",
            "-in",
            "server.csr",
            "-CA",
            "ca.pem",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
            "-days",
            "2",
            "-extfile",
            "names",
            "-out",
            "server.pem",
        ]);
        if let Some((uid, gid)) = account() {
            chown(file("server.key"), Some(uid), Some(gid)).unwrap();
        }
        let mut settings =
            fs::OpenOptions::new().append(true).open(self.data().join("postgresql.conf")).unwrap();
        let (key, certificate) = (file("server.key"), file("server.pem"));
        writeln!(
            settings,
            "ssl = on\nssl_key_file = '{}'\nssl_cert_file = '{}'",
            key.display(),
            certificate.display()
        )
        .unwrap();
        let authority = file("ca.pem");
        self.run();
        authority
    }

    /// Its address over TCP, with the password.
    #[allow(dead_code, reason = "not every test needs it")]
    pub(crate) fn tcp(&self) -> Address {
        Address::parse(&self.url()).unwrap()
    }

    /// The same as text.
    pub(crate) fn url(&self) -> String {
        format!("postgres://ceased:sesame@127.0.0.1:{}/postgres", self.port)
    }

    /// Its address over the Unix socket.
    pub(crate) fn unix(&self) -> Address {
        let dir = self.dir.path().display().to_string().replace('/', "%2F");
        Address::parse(&format!("postgres://ceased@{dir}:{}/postgres", self.port)).unwrap()
    }

    /// Removes the tables of the fleet.
    #[allow(dead_code, reason = "not every test needs it")]
    pub(crate) fn clear(&self) {
        let mut session = Session::open(&self.unix(), "", soon()).unwrap();
        session.script("DROP SCHEMA ceased CASCADE", soon()).unwrap();
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// A program of the server, under the account that may run it.
    fn program(&self, name: &str) -> Command {
        let path = self.programs.join(name);
        let Some((uid, gid)) = account() else { return Command::new(path) };
        let mut command = Command::new("setpriv");
        command.args([
            format!("--reuid={uid}"),
            format!("--regid={gid}"),
            "--clear-groups".to_owned(),
        ]);
        // It ends with the test.
        command.args(["--pdeathsig", "QUIT"]).arg(path).current_dir(self.dir.path());
        command
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A directory of the account that may run it.
fn directory() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    if let Some((uid, gid)) = account() {
        chown(dir.path(), Some(uid), Some(gid)).unwrap();
    }
    dir
}

/// The newest installed version.
fn programs() -> Option<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .map(|version| version.path().join("bin"))
        .filter(|programs| programs.join("initdb").exists())
        .collect();
    found.sort();
    found.pop()
}

/// PostgreSQL refuses to run as root: the account of its package, then.
fn account() -> Option<(u32, u32)> {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        return None;
    }
    let accounts = fs::read_to_string("/etc/passwd").unwrap();
    let fields: Vec<&str> =
        accounts.lines().find(|line| line.starts_with("postgres:"))?.split(':').collect();
    Some((fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?))
}

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|why| panic!("{command:?}: {why}"));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {told}");
    output
}

/// A moment far enough for anything that works.
pub(crate) fn soon() -> Instant {
    Instant::now() + Duration::from_secs(30)
}
