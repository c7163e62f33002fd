//! The tables that the file has several of, as written: every key optional, its value not checked yet.

use std::fmt;

use serde::de::Visitor;
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use super::entry::Entry;
use super::json::{Json, Ordered};
use super::table::{Part, Table};
use super::values::Wording;
pub(super) use super::values::{Size, Span, Text};

/// Declares a part of a table as written.
macro_rules! written {
    ($(#[$doc:meta])* $Part:ident { $($key:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub(super) struct $Part {
            $(pub(super) $key: $type,)*
        }

        impl Part for $Part {
            fn take_from(table: &mut Table<'_, '_>, _: &'static str) -> Self {
                Self { $($key: Part::take_from(table, stringify!($key)),)* }
            }

            fn places(&self, _: &'static str, places: &mut Vec<(&'static str, usize)>) {
                $(self.$key.places(stringify!($key), places);)*
            }
        }
    };
}

written! {
    /// Directory and variables of a process.
    Environment {
        cwd: Entry<String>,
        env: Entry<Ordered<Text>>,
        pass_env: Entry<Vec<Text>>,
        env_file: Entry<String>,
        inherit_env: Entry<bool>,
    }
}

written! {
    /// User, isolation and bounds of a process.
    Confinement {
        run_as: Entry<String>,
        isolation: Entry<String>,
        memory_max: Entry<Size>,
        pids_max: Entry<u64>,
        cpu_max: Entry<String>,
        nice: Entry<u64>,
    }
}

written! {
    /// Keys of a Unix socket.
    UnixSocket {
        path: Entry<String>,
        mode: Entry<Mode>,
        group: Entry<Account>,
        allow_users: Entry<Vec<Spanned<Account>>>,
        allow_groups: Entry<Vec<Spanned<Account>>>,
    }
}

written! {
    /// Keys of an address.
    TcpSocket {
        address: Entry<String>,
        token_file: Entry<String>,
        anonymous: Entry<String>,
    }
}

written! {
    /// Keys of HTTP.
    Http {
        allow_origins: Entry<Vec<Text>>,
        session_idle: Entry<Span>,
        gone: Entry<Span>,
        keep_alive: Entry<Span>,
        sessions_per_identity: Entry<u64>,
        connections_per_address: Entry<u64>,
        replay_bytes: Entry<Size>,
        view: Entry<bool>,
    }
}

written! {
    /// Keys of TLS.
    Tls {
        tls_cert: Entry<String>,
        tls_key: Entry<String>,
    }
}

written! {
    /// Keys about signed tokens.
    Tokens {
        resource: Entry<String>,
        issuer: Entry<Vec<Text>>,
        audience: Entry<Vec<Text>>,
        jwks: Entry<String>,
        issuer_ca_file: Entry<String>,
        scopes: Entry<Vec<Text>>,
        groups_claim: Entry<String>,
    }
}

written! {
    /// `[[listen]]`
    Listen {
        transport: Entry<String>,
        unix: UnixSocket,
        tcp: TcpSocket,
        http: Http,
        tls: Tls,
        tokens: Tokens,
    }
}

written! {
    /// `[[tool]]`
    Tool {
        name: Entry<String>,
        title: Entry<String>,
        description: Entry<String>,
        command: Entry<Vec<Text>>,
        builtin: Entry<String>,
        read_only: Entry<bool>,
        destructive: Entry<bool>,
        idempotent: Entry<bool>,
        open_world: Entry<bool>,
        icon: Entry<String>,
        task_support: Entry<String>,
        timeout: Entry<Span>,
        kill_grace: Entry<Span>,
        max_output: Entry<Size>,
        heartbeat: Entry<String>,
        progress: Entry<String>,
        output: Entry<String>,
        output_schema: Entry<Json>,
        text_limit: Entry<Size>,
        environment: Environment,
        stdin: Entry<String>,
        confirm: Entry<String>,
        confinement: Confinement,
        on_disconnect: Entry<String>,
        allow: Entry<Vec<Text>>,
        max_running: Entry<u64>,
        lock: Entry<String>,
        on_end: Entry<Vec<Text>>,
        input: Entry<Ordered<Input>>,
        input_schema: Entry<Json>,
    }
}

/// `oauth` of a server.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Oauth {
    pub(super) grant: Option<Text>,
    pub(super) client_id: Option<Text>,
    pub(super) client_secret_file: Option<Text>,
    pub(super) client_metadata: Option<Text>,
    pub(super) scopes: Option<Spanned<Vec<Text>>>,
}

written! {
    /// Keys of a server by URL.
    Remote {
        url: Entry<String>,
        headers: Entry<Ordered<Text>>,
        headers_file: Entry<String>,
        token_file: Entry<String>,
        oauth: Entry<Oauth>,
        protocol: Entry<String>,
        connect_timeout: Entry<Span>,
        read_timeout: Entry<Span>,
        max_connections: Entry<u64>,
        ca_file: Entry<String>,
        client_cert: Entry<String>,
        client_key: Entry<String>,
        allow_private: Entry<bool>,
    }
}

written! {
    /// `[[server]]`
    Server {
        name: Entry<String>,
        command: Entry<Vec<Text>>,
        remote: Remote,
        environment: Environment,
        prefix: Entry<String>,
        revision: Entry<String>,
        share: Entry<String>,
        warm: Entry<u64>,
        start: Entry<String>,
        start_timeout: Entry<Span>,
        idle_exit: Entry<String>,
        max_instances: Entry<u64>,
        max_instances_per_identity: Entry<u64>,
        max_running: Entry<u64>,
        max_running_per_identity: Entry<u64>,
        max_calls: Entry<u64>,
        timeout: Entry<Span>,
        heartbeat: Entry<String>,
        cancel_grace: Entry<Span>,
        kill_grace: Entry<Span>,
        drain: Entry<Span>,
        on_ignored_cancel: Entry<String>,
        task_support: Entry<String>,
        pin: Entry<String>,
        tools: Entry<Vec<Text>>,
        hide: Entry<Vec<Text>>,
        allow: Entry<Vec<Text>>,
        confirm: Entry<Ordered<Text>>,
        confinement: Confinement,
    }
}

written! {
    /// `[[agent]]`
    Agent {
        name: Entry<String>,
        command: Entry<Vec<Text>>,
        environment: Environment,
        start_timeout: Entry<Span>,
        max_instances: Entry<u64>,
        max_instances_per_identity: Entry<u64>,
        turn_timeout: Entry<String>,
        stall_timeout: Entry<String>,
        cancel_grace: Entry<Span>,
        kill_grace: Entry<Span>,
        drain: Entry<Span>,
        on_ignored_cancel: Entry<String>,
        allow: Entry<Vec<Text>>,
        confinement: Confinement,
    }
}

written! {
    /// `[[profile]]`
    Profile {
        name: Entry<String>,
        servers: Entry<Vec<Text>>,
        tools: Entry<Vec<Text>>,
        hide: Entry<Vec<Text>>,
        allow: Entry<Vec<Text>>,
    }
}

/// `[tool.input.NAME]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {
    pub(super) r#type: Option<Text>,
    pub(super) description: Option<String>,
    pub(super) required: Option<bool>,
    pub(super) default: Option<Spanned<Json>>,
    pub(super) r#enum: Option<Spanned<Vec<Json>>>,
    pub(super) minimum: Option<Spanned<Json>>,
    pub(super) maximum: Option<Spanned<Json>>,
}

/// The permission bits of a socket as written.
#[derive(Debug)]
pub(super) struct Mode(pub(super) String);

/// A user or a group as written: its name, or its number as text.
#[derive(Debug)]
pub(super) struct Account(pub(super) String);

impl<'de> Deserialize<'de> for Mode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Wording("octal digits in quotes, such as \"0600\"", Self))
    }
}

impl<'de> Deserialize<'de> for Account {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl Visitor<'_> for Either {
            type Value = Account;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name such as \"alice\", or a number")
            }

            fn visit_str<E>(self, text: &str) -> Result<Account, E> {
                Ok(Account(text.to_owned()))
            }

            fn visit_i64<E>(self, number: i64) -> Result<Account, E> {
                Ok(Account(number.to_string()))
            }
        }

        deserializer.deserialize_any(Either)
    }
}
