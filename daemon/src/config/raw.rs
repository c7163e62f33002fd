//! The tables that the file has several of, as written: every key optional, its value not checked yet.

use std::fmt;

use serde::de::Visitor;
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use super::json::{Json, Ordered};
use super::table::{Part, Table};
use super::values::Wording;
pub(super) use super::values::{Size, Span, Text, Whole};

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
        cwd: Option<Text>,
        env: Option<Spanned<Ordered<Text>>>,
        pass_env: Option<Spanned<Vec<Text>>>,
        env_file: Option<Text>,
        inherit_env: Option<Spanned<bool>>,
    }
}

written! {
    /// User, isolation and bounds of a process.
    Confinement {
        run_as: Option<Text>,
        isolation: Option<Text>,
        memory_max: Option<Spanned<Size>>,
        pids_max: Option<Whole>,
        cpu_max: Option<Text>,
        nice: Option<Whole>,
    }
}

written! {
    /// Keys of a Unix socket.
    UnixSocket {
        path: Option<Text>,
        mode: Option<Spanned<Mode>>,
        group: Option<Spanned<Account>>,
        allow_users: Option<Spanned<Vec<Spanned<Account>>>>,
        allow_groups: Option<Spanned<Vec<Spanned<Account>>>>,
    }
}

written! {
    /// Keys of an address.
    TcpSocket {
        address: Option<Text>,
        token_file: Option<Text>,
        anonymous: Option<Text>,
    }
}

written! {
    /// Keys of HTTP.
    Http {
        allow_origins: Option<Spanned<Vec<Text>>>,
        session_idle: Option<Spanned<Span>>,
        gone: Option<Spanned<Span>>,
        keep_alive: Option<Spanned<Span>>,
        sessions_per_identity: Option<Whole>,
        connections_per_address: Option<Whole>,
        replay_bytes: Option<Spanned<Size>>,
        view: Option<Spanned<bool>>,
    }
}

written! {
    /// Keys of TLS.
    Tls {
        tls_cert: Option<Text>,
        tls_key: Option<Text>,
    }
}

written! {
    /// Keys about signed tokens.
    Tokens {
        resource: Option<Text>,
        issuer: Option<Spanned<Vec<Text>>>,
        audience: Option<Spanned<Vec<Text>>>,
        jwks: Option<Text>,
        issuer_ca_file: Option<Text>,
        scopes: Option<Spanned<Vec<Text>>>,
        groups_claim: Option<Text>,
    }
}

written! {
    /// `[[listen]]`
    Listen {
        transport: Option<Text>,
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
        name: Option<Text>,
        title: Option<Text>,
        description: Option<Text>,
        command: Option<Spanned<Vec<Text>>>,
        builtin: Option<Text>,
        read_only: Option<Spanned<bool>>,
        destructive: Option<Spanned<bool>>,
        idempotent: Option<Spanned<bool>>,
        open_world: Option<Spanned<bool>>,
        icon: Option<Text>,
        task_support: Option<Text>,
        timeout: Option<Spanned<Span>>,
        kill_grace: Option<Spanned<Span>>,
        max_output: Option<Spanned<Size>>,
        heartbeat: Option<Text>,
        progress: Option<Text>,
        output: Option<Text>,
        output_schema: Option<Spanned<Json>>,
        text_limit: Option<Spanned<Size>>,
        environment: Environment,
        stdin: Option<Text>,
        confirm: Option<Text>,
        confinement: Confinement,
        on_disconnect: Option<Text>,
        allow: Option<Spanned<Vec<Text>>>,
        max_running: Option<Whole>,
        lock: Option<Text>,
        on_end: Option<Spanned<Vec<Text>>>,
        input: Option<Spanned<Ordered<Input>>>,
        input_schema: Option<Spanned<Json>>,
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
        url: Option<Text>,
        headers: Option<Spanned<Ordered<Text>>>,
        headers_file: Option<Text>,
        token_file: Option<Text>,
        oauth: Option<Spanned<Oauth>>,
        protocol: Option<Text>,
        connect_timeout: Option<Spanned<Span>>,
        read_timeout: Option<Spanned<Span>>,
        max_connections: Option<Whole>,
        ca_file: Option<Text>,
        client_cert: Option<Text>,
        client_key: Option<Text>,
        allow_private: Option<Spanned<bool>>,
    }
}

written! {
    /// `[[server]]`
    Server {
        name: Option<Text>,
        command: Option<Spanned<Vec<Text>>>,
        remote: Remote,
        environment: Environment,
        prefix: Option<Text>,
        revision: Option<Text>,
        share: Option<Text>,
        warm: Option<Whole>,
        start: Option<Text>,
        start_timeout: Option<Spanned<Span>>,
        idle_exit: Option<Text>,
        max_instances: Option<Whole>,
        max_instances_per_identity: Option<Whole>,
        max_calls: Option<Whole>,
        timeout: Option<Spanned<Span>>,
        heartbeat: Option<Text>,
        cancel_grace: Option<Spanned<Span>>,
        kill_grace: Option<Spanned<Span>>,
        drain: Option<Spanned<Span>>,
        on_ignored_cancel: Option<Text>,
        task_support: Option<Text>,
        pin: Option<Text>,
        tools: Option<Spanned<Vec<Text>>>,
        hide: Option<Spanned<Vec<Text>>>,
        allow: Option<Spanned<Vec<Text>>>,
        confirm: Option<Spanned<Ordered<Text>>>,
        confinement: Confinement,
    }
}

written! {
    /// `[[agent]]`
    Agent {
        name: Option<Text>,
        command: Option<Spanned<Vec<Text>>>,
        environment: Environment,
        start_timeout: Option<Spanned<Span>>,
        max_instances: Option<Whole>,
        max_instances_per_identity: Option<Whole>,
        turn_timeout: Option<Text>,
        stall_timeout: Option<Text>,
        cancel_grace: Option<Spanned<Span>>,
        kill_grace: Option<Spanned<Span>>,
        drain: Option<Spanned<Span>>,
        on_ignored_cancel: Option<Text>,
        allow: Option<Spanned<Vec<Text>>>,
        confinement: Confinement,
    }
}

written! {
    /// `[[profile]]`
    Profile {
        name: Option<Text>,
        servers: Option<Spanned<Vec<Text>>>,
        tools: Option<Spanned<Vec<Text>>>,
        hide: Option<Spanned<Vec<Text>>>,
        allow: Option<Spanned<Vec<Text>>>,
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
