//! The client against a real PostgreSQL.

#![allow(clippy::unwrap_used, reason = "a helper that fails ends its test")]

mod server;

use std::io::Read as _;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use ceased_fleet::postgres::{Address, Batch, Host, PgError, Session, Statement, TlsMode, Value};
use server::{Server, soon};

const ECHO: Statement = Statement {
    name: "echo",
    sql: "SELECT $1::int8, $2::text, $3::bytea, $4::uuid, $5::bool, $6::int8[] = '{1,-2}'::int8[], \
          $7::uuid[] = ARRAY[$4::uuid], $8::text, $9::int2, $10::int4",
};
const DIVIDE: Statement = Statement { name: "divide", sql: "SELECT 10 / $1::int4" };
const INSERT: Statement = Statement { name: "insert", sql: "INSERT INTO kept VALUES ($1::int8)" };
const COUNT: Statement = Statement { name: "count", sql: "SELECT count(*) FROM kept" };

fn open(address: &Address) -> Session {
    Session::open(address, "SET synchronous_commit = on", soon()).unwrap()
}

fn one(statement: &'static Statement, values: &[Value<'_>]) -> Batch {
    let mut batch = Batch::new();
    batch.push(statement, values).unwrap();
    batch
}

#[test]
fn values_come_back_as_they_went() {
    let Some(server) = Server::start() else { return };
    for address in [server.tcp(), server.unix()] {
        let mut session = open(&address);
        let id = [7; 16];
        let long = "ü".repeat(300_000);
        let values = [
            Value::Int8(i64::MIN),
            Value::Text(&long),
            Value::Bytes(&[0, 255, 10]),
            Value::Uuid(id),
            Value::Bool(true),
            Value::Int8s(&[1, -2]),
            Value::Uuids(&[id]),
            Value::Null,
            Value::Int2(-3),
            Value::Int4(70_000),
        ];
        // The second time it is prepared already.
        for _ in 0..2 {
            let results = session.run(&one(&ECHO, &values), soon()).unwrap();
            let row = &results[0].rows[0];
            assert_eq!(row.number(0).unwrap(), Some(i64::MIN));
            assert_eq!(row.text(1).unwrap(), Some(long.as_str()));
            assert_eq!(row.bytes(2).unwrap(), Some(&[0, 255, 10][..]));
            assert_eq!(row.uuid(3).unwrap(), Some(id));
            assert_eq!([4, 5, 6].map(|column| row.number(column).unwrap()), [Some(1); 3]);
            assert_eq!(row.text(7).unwrap(), None);
            assert_eq!([8, 9].map(|column| row.number(column).unwrap()), [Some(-3), Some(70_000)]);
            assert!(row.number(10).is_err());
        }
    }
}

#[test]
fn batch_is_carried_out_whole_or_not_at_all() {
    let Some(server) = Server::start() else { return };
    let mut session = open(&server.tcp());
    session.script("CREATE TABLE kept (number int8 PRIMARY KEY)", soon()).unwrap();
    let mut batch = Batch::new();
    for number in 0..500 {
        batch.push(&INSERT, &[Value::Int8(number)]).unwrap();
    }
    batch.push(&DIVIDE, &[Value::Int4(0)]).unwrap();
    batch.push(&COUNT, &[]).unwrap();
    let error = session.run(&batch, soon()).unwrap_err();
    assert_eq!(error.code(), Some("22012"), "{error}");
    let count = |session: &mut Session| {
        let results = session.run(&one(&COUNT, &[]), soon()).unwrap();
        results[0].rows[0].number(0).unwrap().unwrap()
    };
    // The session goes on, also with the statements that were prepared in the failed batch.
    assert_eq!(count(&mut session), 0);
    let mut batch = one(&INSERT, &[Value::Int8(1)]);
    batch.push(&DIVIDE, &[Value::Int4(5)]).unwrap();
    let results = session.run(&batch, soon()).unwrap();
    assert_eq!(results[0].count, 1);
    assert_eq!(results[1].rows[0].number(0).unwrap(), Some(2));
    assert_eq!(count(&mut session), 1);
}

#[test]
fn hint_reaches_the_session_that_listens() {
    let Some(server) = Server::start() else { return };
    let mut listening = open(&server.tcp());
    listening.script("LISTEN ceased_7", soon()).unwrap();
    let none = listening.notification(Instant::now() + Duration::from_millis(50)).unwrap();
    assert_eq!(none, None);
    open(&server.unix()).script("NOTIFY ceased_7, 'a task'", soon()).unwrap();
    let hint = listening.notification(soon()).unwrap().unwrap();
    assert_eq!((hint.channel.as_str(), hint.payload.as_str()), ("ceased_7", "a task"));
    // One that arrives with the answer to a question waits.
    listening.script("NOTIFY ceased_7, 'own'; SELECT 1", soon()).unwrap();
    assert_eq!(listening.notification(soon()).unwrap().unwrap().payload, "own");
}

#[test]
fn host_that_takes_writes_is_used() {
    let Some(server) = Server::start() else { return };
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut address = server.tcp();
    address.hosts.insert(0, Host::Tcp("127.0.0.1".to_owned(), closed));
    assert_eq!(open(&address).host(), &address.hosts[1]);
    // One that is silent, as after a loss of power, leaves time for the others.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    address.hosts.insert(0, Host::Tcp("127.0.0.1".to_owned(), port));
    let opened = Session::open(&address, "", Instant::now() + Duration::from_secs(2));
    assert_eq!(opened.unwrap().host(), &address.hosts[2]);
    // A standby is one that takes no writes.
    let read_only = "ALTER DATABASE postgres SET default_transaction_read_only = on";
    open(&server.tcp()).script(read_only, soon()).unwrap();
    let error = Session::open(&address, "", soon()).unwrap_err();
    assert!(matches!(error, PgError::NoneWritable(_)), "{error}");
    let told = error.to_string();
    assert!(told.contains(&closed.to_string()) && told.contains("standby"), "{told}");
}

#[test]
fn wrong_password_and_an_unknown_database_are_told() {
    let Some(server) = Server::start() else { return };
    let mut address = server.tcp();
    address.password = Some("wrong".to_owned());
    let error = Session::open(&address, "", soon()).unwrap_err();
    assert_eq!(error.code(), Some("28P01"), "{error}");
    address.password = None;
    let error = Session::open(&address, "", soon()).unwrap_err();
    assert!(error.to_string().contains("password of \"ceased\""), "{error}");
    let mut address = server.unix();
    address.database = "elsewhere".to_owned();
    let error = Session::open(&address, "", soon()).unwrap_err();
    assert_eq!(error.code(), Some("3D000"), "{error}");
}

#[test]
fn no_wait_is_longer_than_its_deadline() {
    // It takes the connection, and never answers.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let address = Address::parse(&format!("postgres://ceased@127.0.0.1:{port}/x")).unwrap();
    let begun = Instant::now();
    let error = Session::open(&address, "", begun + Duration::from_millis(200)).unwrap_err();
    assert!(matches!(error, PgError::TimedOut), "{error}");
    let Some(server) = Server::start() else { return };
    let mut session = open(&server.tcp());
    let error = session.script("SELECT pg_sleep(60)", Instant::now() + Duration::from_millis(200));
    assert!(matches!(error, Err(PgError::TimedOut)), "{error:?}");
    assert!(begun.elapsed() < Duration::from_secs(50));
}

#[test]
fn end_of_the_server_is_an_error() {
    let Some(mut server) = Server::start() else { return };
    let mut session = open(&server.tcp());
    server.kill();
    let error = session.script("SELECT 1", soon()).unwrap_err();
    assert!(matches!(error, PgError::Io(_) | PgError::Closed(_)), "{error}");
    server.run();
    open(&server.tcp()).script("SELECT 1", soon()).unwrap();
}

#[test]
fn message_of_any_length_reserves_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let hostile = std::thread::spawn(move || {
        let (mut peer, _) = listener.accept().unwrap();
        std::io::Write::write_all(&mut peer, &[b'R', 0xff, 0xff, 0xff, 0xff]).unwrap();
        let _ = peer.read(&mut [0; 1024]);
    });
    let address = Address::parse(&format!("postgres://ceased@127.0.0.1:{port}/x")).unwrap();
    let error = Session::open(&address, "", soon()).unwrap_err();
    assert!(matches!(error, PgError::Unexpected(_)), "{error}");
    hostile.join().unwrap();
}

/// Whether the connection is encrypted, as the server sees it.
fn is_encrypted(session: &mut Session) -> bool {
    let sql = "SELECT ssl::int FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    session.script(sql, soon()).unwrap()[0].rows[0].text(0).unwrap() == Some("1")
}

#[test]
fn connection_is_encrypted_as_sslmode_says() {
    let Some(mut server) = Server::start() else { return };
    let with = |server: &Server, host: &str, tls, ca_file| {
        let Some(Host::Tcp(_, port)) = server.tcp().hosts.pop() else { panic!("no port") };
        let address =
            Address { hosts: vec![Host::Tcp(host.to_owned(), port)], tls, ca_file, ..server.tcp() };
        Session::open(&address, "", soon())
    };
    let (by_name, by_number) = ("localhost", "127.0.0.1");
    // Without TLS there.
    assert!(!is_encrypted(&mut with(&server, by_name, TlsMode::Prefer, None).unwrap()));
    let refused = with(&server, by_name, TlsMode::Require, None).unwrap_err();
    assert!(refused.to_string().contains("takes no encrypted connection"), "{refused}");

    let authority = Some(server.encrypt());
    assert!(!is_encrypted(&mut with(&server, by_name, TlsMode::Disable, None).unwrap()));
    for tls in [TlsMode::Prefer, TlsMode::Require] {
        assert!(is_encrypted(&mut with(&server, by_number, tls, None).unwrap()), "{tls:?}");
    }
    for tls in [TlsMode::Require, TlsMode::VerifyCa] {
        let mut session = with(&server, by_number, tls, authority.clone()).unwrap();
        assert!(is_encrypted(&mut session), "{tls:?}");
    }
    let mut verified = with(&server, by_name, TlsMode::VerifyFull, authority.clone()).unwrap();
    assert!(is_encrypted(&mut verified));
    // A long answer and a long question.
    let long = "x".repeat(3 << 20);
    let sql = format!("SELECT '{long}'");
    assert_eq!(
        verified.script(&sql, soon()).unwrap()[0].rows[0].text(0).unwrap(),
        Some(long.as_str())
    );
    // Another name, and an authority that the system does not know.
    for (host, tls, ca_file) in [
        (by_number, TlsMode::VerifyFull, authority),
        (by_name, TlsMode::VerifyFull, None),
        (by_name, TlsMode::VerifyCa, None),
    ] {
        let refused = with(&server, host, tls, ca_file).unwrap_err();
        assert!(matches!(refused, PgError::Tls(_)), "{tls:?}: {refused}");
    }
}
