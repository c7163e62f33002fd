//! How a session proves its role.

use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{self, ChannelBinding, ScramSha256};
use postgres_protocol::message::backend::Message;
use postgres_protocol::message::frontend;

use bytes::BytesMut;
use fallible_iterator::FallibleIterator as _;

use super::error::PgError;

/// The exchange of one session.
pub(super) struct Authentication<'a> {
    user: &'a str,
    password: Option<&'a str>,
    /// True where a password in clear is seen by the server alone.
    private: bool,
    scram: Option<ScramSha256>,
}

/// Where an exchange stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// The output has an answer for the server.
    Answer,
    /// The server said something that needs no answer.
    Quiet,
    /// The role is proved.
    Done,
    /// The message is no part of the exchange.
    Foreign,
}

impl<'a> Authentication<'a> {
    /// An exchange that has not begun.
    pub(super) const fn new(user: &'a str, password: Option<&'a str>, private: bool) -> Self {
        Self { user, password, private, scram: None }
    }

    /// Takes one message, and writes the answer.
    #[allow(
        clippy::wildcard_enum_match_arm,
        reason = "the protocol has many messages of other exchanges"
    )]
    pub(super) fn take(
        &mut self,
        message: &Message,
        output: &mut BytesMut,
    ) -> Result<Progress, PgError> {
        match message {
            Message::AuthenticationOk => Ok(Progress::Done),
            Message::AuthenticationCleartextPassword if !self.private => Err(PgError::Authentication(
                "the database asks for a password in clear on a connection that is not encrypted; \
                 use sslmode=verify-full, or scram-sha-256 in pg_hba.conf"
                    .to_owned(),
            )),
            Message::AuthenticationCleartextPassword => {
                frontend::password_message(self.password()?.as_bytes(), output)?;
                Ok(Progress::Answer)
            }
            Message::AuthenticationMd5Password(body) => {
                let hash = md5_hash(self.user.as_bytes(), self.password()?.as_bytes(), body.salt());
                frontend::password_message(hash.as_bytes(), output)?;
                Ok(Progress::Answer)
            }
            Message::AuthenticationSasl(body) => {
                let mut mechanisms = body.mechanisms();
                let mut is_known = false;
                while let Some(mechanism) = mechanisms.next()? {
                    is_known |= mechanism == sasl::SCRAM_SHA_256;
                }
                if !is_known {
                    return Err(unknown());
                }
                let scram = ScramSha256::new(self.password()?.as_bytes(), ChannelBinding::unsupported());
                frontend::sasl_initial_response(sasl::SCRAM_SHA_256, scram.message(), output)?;
                self.scram = Some(scram);
                Ok(Progress::Answer)
            }
            Message::AuthenticationSaslContinue(body) => {
                let scram = self.scram.as_mut().ok_or_else(unknown)?;
                scram.update(body.data())?;
                frontend::sasl_response(scram.message(), output)?;
                Ok(Progress::Answer)
            }
            Message::AuthenticationSaslFinal(body) => {
                self.scram.as_mut().ok_or_else(unknown)?.finish(body.data())?;
                Ok(Progress::Quiet)
            }
            Message::AuthenticationGss
            | Message::AuthenticationKerberosV5
            | Message::AuthenticationScmCredential
            | Message::AuthenticationSspi
            | Message::AuthenticationGssContinue(_) => Err(unknown()),
            _ => Ok(Progress::Foreign),
        }
    }

    fn password(&self) -> Result<&'a str, PgError> {
        self.password.ok_or_else(|| {
            PgError::Authentication(format!(
                "the database asks for the password of {:?}, and the address has none",
                self.user
            ))
        })
    }
}

fn unknown() -> PgError {
    PgError::Authentication(
        "the database asks for an authentication that this client does not know; it knows \
         scram-sha-256, md5 and password"
            .to_owned(),
    )
}
