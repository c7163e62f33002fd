//! One connection to a database.

use std::collections::{BTreeSet, VecDeque};
use std::time::Instant;

use bytes::BytesMut;
use postgres_protocol::message::backend::Message;
use postgres_protocol::message::frontend;

use super::address::{Address, Host};
use super::authentication::{Authentication, Progress};
use super::batch::Batch;
use super::error::{PgError, ServerError};
use super::rows::{Row, Rows};
use super::stream::{Stream, share};

/// Most notifications that wait to be taken; later ones are dropped, since each is a hint alone.
const NOTIFICATIONS: usize = 4096;

/// Bytes of the largest message that is taken: a result of a task and some room.
const MESSAGE_BYTES: u32 = 256 * 1024 * 1024;

/// A connection, with its prepared statements. Every operation has a deadline; after an error other than
/// [`PgError::Server`] the session is of no use.
#[derive(Debug)]
pub struct Session {
    stream: Stream,
    input: BytesMut,
    output: BytesMut,
    prepared: BTreeSet<&'static str>,
    notifications: VecDeque<Notification>,
    host: Host,
}

/// A hint of another session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notification {
    /// The channel that it came on.
    pub channel: String,
    /// Its text.
    pub payload: String,
}

/// The answers to a batch.
#[derive(Default)]
struct Answers {
    results: Vec<Rows>,
    current: Rows,
    error: Option<Box<ServerError>>,
    in_doubt: bool,
}

impl Session {
    /// Connects to the first host of the address that takes writes; one that does not answer leaves the others
    /// their share of the time. `settings` are SQL, run once.
    ///
    /// # Errors
    /// [`PgError`]; [`PgError::NoneWritable`] has the reason of each host where there are several.
    pub fn open(address: &Address, settings: &str, deadline: Instant) -> Result<Self, PgError> {
        let mut reasons = Vec::new();
        for (host, rest) in address.hosts.iter().zip((1..=address.hosts.len()).rev()) {
            let share = share(deadline, rest)?;
            let opened = Self::open_host(address, host, share).and_then(|mut session| {
                session.script(settings, share)?;
                match session.is_writable(share)? {
                    true => Ok(session),
                    false => Err(PgError::NoneWritable("it is a standby".to_owned())),
                }
            });
            match opened {
                Ok(session) => return Ok(session),
                Err(error) if address.hosts.len() == 1 => return Err(error),
                Err(PgError::NoneWritable(why)) => reasons.push(format!("{host}: {why}")),
                Err(error) => reasons.push(format!("{host}: {error}")),
            }
        }
        Err(PgError::NoneWritable(reasons.join("; ")))
    }

    /// The host that it is connected to.
    #[must_use]
    pub const fn host(&self) -> &Host {
        &self.host
    }

    #[allow(
        clippy::wildcard_enum_match_arm,
        reason = "the protocol has many messages of other exchanges"
    )]
    fn open_host(address: &Address, host: &Host, deadline: Instant) -> Result<Self, PgError> {
        let stream = Stream::connect(address, host, deadline)?;
        let mut session = Self {
            stream,
            input: BytesMut::new(),
            output: BytesMut::new(),
            prepared: BTreeSet::new(),
            notifications: VecDeque::new(),
            host: host.clone(),
        };
        let parameters = [
            ("user", address.user.as_str()),
            ("database", &address.database),
            ("client_encoding", "UTF8"),
            ("application_name", "ceased"),
        ];
        frontend::startup_message(parameters, &mut session.output)?;
        session.flush(deadline)?;
        let private = session.stream.is_private();
        let mut exchange = Authentication::new(&address.user, address.password.as_deref(), private);
        loop {
            let message = session.receive(deadline)?;
            match exchange.take(&message, &mut session.output)? {
                Progress::Answer => session.flush(deadline)?,
                Progress::Quiet => {}
                Progress::Done => break,
                Progress::Foreign => match message {
                    Message::ErrorResponse(body) => {
                        return Err(PgError::Closed(Box::new(ServerError::of(body.fields()))));
                    }
                    Message::NoticeResponse(_) => {}
                    _ => return Err(PgError::Unexpected("a message within an authentication")),
                },
            }
        }
        session.answers(deadline)?;
        Ok(session)
    }

    fn is_writable(&mut self, deadline: Instant) -> Result<bool, PgError> {
        frontend::query("SHOW transaction_read_only", &mut self.output)?;
        self.flush(deadline)?;
        let answers = self.answers(deadline)?;
        let row = answers.first().and_then(|rows| rows.rows.first());
        let row = row.ok_or(PgError::Unexpected("no row"))?;
        Ok(row.text(0)? == Some("off"))
    }

    /// Carries out statements without parameters, separated by semicolons, as one transaction.
    ///
    /// # Errors
    /// [`PgError`].
    pub fn script(&mut self, sql: &str, deadline: Instant) -> Result<Vec<Rows>, PgError> {
        frontend::query(sql, &mut self.output)?;
        self.flush(deadline)?;
        self.answers(deadline)
    }

    /// Carries out a batch as one transaction, and returns the result of each statement.
    ///
    /// # Errors
    /// [`PgError`]. After [`PgError::Server`] nothing of the batch was done.
    pub fn run(&mut self, batch: &Batch, deadline: Instant) -> Result<Vec<Rows>, PgError> {
        let mut parsed = Vec::new();
        for step in &batch.steps {
            let name = step.statement.name;
            if !self.prepared.contains(name) && !parsed.contains(&name) {
                frontend::parse(name, step.statement.sql, [], &mut self.output)?;
                parsed.push(name);
            }
            self.output.extend_from_slice(&step.messages);
        }
        frontend::sync(&mut self.output);
        self.flush(deadline)?;
        match self.answers(deadline) {
            Ok(results) => {
                self.prepared.extend(parsed);
                if results.len() == batch.len() {
                    Ok(results)
                } else {
                    Err(PgError::Unexpected("another number of results than of statements"))
                }
            }
            Err(error) => {
                // Those before the one that failed are prepared, and cannot be told apart: the next
                // batch prepares anew.
                if matches!(error, PgError::Server(_)) && !parsed.is_empty() {
                    self.forget(&parsed, deadline)?;
                }
                Err(error)
            }
        }
    }

    /// Removes prepared statements; no error where there are none.
    fn forget(&mut self, names: &[&'static str], deadline: Instant) -> Result<(), PgError> {
        for name in names {
            frontend::close(b'S', name, &mut self.output)?;
        }
        frontend::sync(&mut self.output);
        self.flush(deadline)?;
        self.answers(deadline).map(drop)
    }

    /// The next notification; `None` at the deadline.
    ///
    /// # Errors
    /// [`PgError`] other than [`PgError::TimedOut`].
    pub fn notification(&mut self, deadline: Instant) -> Result<Option<Notification>, PgError> {
        loop {
            if let Some(notification) = self.notifications.pop_front() {
                return Ok(Some(notification));
            }
            match self.receive(deadline) {
                Ok(Message::ParameterStatus(_) | Message::NoticeResponse(_)) => {}
                Ok(Message::NotificationResponse(body)) => {
                    self.keep(body.channel()?, body.message()?);
                }
                Ok(Message::ErrorResponse(body)) => {
                    return Err(PgError::Closed(Box::new(ServerError::of(body.fields()))));
                }
                Ok(_) => return Err(PgError::Unexpected("an answer without a question")),
                Err(PgError::TimedOut) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    /// True when a notification has arrived and waits to be taken.
    #[must_use]
    pub fn has_notification(&self) -> bool {
        !self.notifications.is_empty()
    }

    fn keep(&mut self, channel: &str, payload: &str) {
        if self.notifications.len() < NOTIFICATIONS {
            let notification =
                Notification { channel: channel.to_owned(), payload: payload.to_owned() };
            self.notifications.push_back(notification);
        }
    }

    fn flush(&mut self, deadline: Instant) -> Result<(), PgError> {
        let output = self.output.split();
        self.stream.send(&output, deadline)
    }

    fn receive(&mut self, deadline: Instant) -> Result<Message, PgError> {
        loop {
            // The parser would reserve as much as the message says.
            if let Some(&[_, a, b, c, d]) = self.input.first_chunk::<5>()
                && u32::from_be_bytes([a, b, c, d]) > MESSAGE_BYTES
            {
                return Err(PgError::Unexpected("a message of more than 256 MiB"));
            }
            if let Some(message) = Message::parse(&mut self.input)? {
                return Ok(message);
            }
            self.stream.receive(&mut self.input, deadline)?;
        }
    }

    /// Reads up to the end of a transaction.
    fn answers(&mut self, deadline: Instant) -> Result<Vec<Rows>, PgError> {
        let mut answers = Answers::default();
        loop {
            let message = match (self.receive(deadline), answers.error.take()) {
                (Ok(message), error) => {
                    answers.error = error;
                    message
                }
                (Err(PgError::Io(_)), Some(error)) => return Err(PgError::Closed(error)),
                (Err(error), _) => return Err(error),
            };
            if let Message::NotificationResponse(body) = &message {
                self.keep(body.channel()?, body.message()?);
            } else if answers.take(message)? {
                break;
            }
        }
        match answers {
            Answers { error: Some(error), .. } => Err(PgError::Server(error)),
            Answers { in_doubt: true, .. } => Err(PgError::InDoubt),
            Answers { results, .. } => Ok(results),
        }
    }
}

impl Answers {
    /// Takes one message; true at the end of the transaction.
    #[allow(
        clippy::wildcard_enum_match_arm,
        reason = "the protocol has many messages of other exchanges"
    )]
    fn take(&mut self, message: Message) -> Result<bool, PgError> {
        match message {
            Message::DataRow(body) => self.current.rows.push(Row::read(body)?),
            Message::CommandComplete(body) => {
                let count = body.tag()?.rsplit(' ').next().and_then(|word| word.parse().ok());
                let count = count.unwrap_or_default();
                self.results.push(Rows { count, ..std::mem::take(&mut self.current) });
            }
            Message::EmptyQueryResponse => self.results.push(Rows::default()),
            Message::ErrorResponse(body) => {
                let error = ServerError::of(body.fields());
                self.error.get_or_insert_with(|| Box::new(error));
            }
            // "canceling wait for synchronous replication": an operator or a shutdown.
            Message::NoticeResponse(body) => {
                self.in_doubt |= ServerError::of(body.fields()).code == "01000";
            }
            Message::ReadyForQuery(_) => return Ok(true),
            Message::ParseComplete
            | Message::BindComplete
            | Message::CloseComplete
            | Message::NoData
            | Message::ParameterStatus(_)
            | Message::BackendKeyData(_)
            | Message::RowDescription(_) => {}
            _ => return Err(PgError::Unexpected("a message of another protocol")),
        }
        Ok(false)
    }
}
